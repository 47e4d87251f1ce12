#include "cli/dashboard.h"

#include "base/log.h"
#include "run/run_files.h"

void mt_dashboard_keep(const mt_server *s, const char *dir)
{
    mt_err err = { 0 };
    mt_rc rc = mt_run_files_add(dir, MT_SERVER_FOLDER, &err);
    if (!rc) rc = mt_run_files_add(dir, MT_SERVER_FILE, &err);
    if (!rc) rc = mt_server_keep(s, &err);
    if (rc) mt_info("could not save the dashboard's address, so it is shown only here: %s", err.msg);
}
