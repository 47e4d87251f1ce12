/* record_files.h - which files a path means: a file, a folder, a glob, or what save_to_disk wrote. */
#ifndef MT_DATA_RECORD_FILES_H
#define MT_DATA_RECORD_FILES_H

#include "data/formats.h"

/* Paths in the order they are to be read, never none.  Release with mt__name_list_free. */
mt_rc mt__record_files(mt_name_list *out, const char *path, const mt_records_options *opt, mt_err *err);

/* The folder that a pattern names before its first wildcard; newly allocated. */
char *mt__pattern_folder(const char *pattern);

#endif
