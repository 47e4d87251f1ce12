/* dashboard.h - stores the address of a run's page, which contains a secret key for the run's owner. */
#ifndef MT_CLI_DASHBOARD_H
#define MT_CLI_DASHBOARD_H

#include "page/server.h"

/* Writes it to the run's directory and lists it as the run's file.  If that fails, prints a notice: the terminal shows the
 * address too. */
void mt_dashboard_keep(const mt_server *s, const char *dir);

#endif
