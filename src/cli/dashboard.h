/* dashboard.h - where the address of a run's page is kept: it has a key in it, which is for the run's owner alone. */
#ifndef MT_CLI_DASHBOARD_H
#define MT_CLI_DASHBOARD_H

#include "page/server.h"

/* In the run's directory, listed as the run's.  Where that cannot be, a notice says so: the terminal shows the address, too. */
void mt_dashboard_keep(const mt_server *s, const char *dir);

#endif
