set(sources arrow_cache.c card.c choose.c dataset.c download.c http.c hub.c names.c partial.c places.c repo.c sha.c sha_shani.c snapshot.c)
