/* assets.h - the files of the page as the build embeds them, NUL-terminated.  Inside src/page only. */
#ifndef MT_PAGE_ASSETS_H
#define MT_PAGE_ASSETS_H

extern const char mt__asset_page_html[], mt__asset_page_css[], mt__asset_page_js[];

#endif
