#include "device/choices.h"

#include "base/mem.h"
#include "base/rng.h"

#include <pthread.h>
#include <string.h>

enum { PLACES = 4096 }; /* emptied when three quarters are taken */

typedef struct choice_entry {
    int64_t key[MT_TUNED_KEY]; /* [0] is 0: an empty place */
    uint64_t choice[MT_TUNED_CHOICE];
    bool found; /* there is a kernel */
} choice_entry;

struct mt_choices {
    pthread_mutex_t lock; /* guards what follows */
    int references, n_taken;
    int64_t n_made;
    choice_entry places[PLACES]; /* by hash of the key, then the next free place */
};

mt_rc mt_choices_create(mt_choices **out, mt_err *err)
{
    *out = mt_calloc(1, sizeof **out);
    if (!*out) return mt_no_memory(err, "the table of products");
    pthread_mutex_init(&(*out)->lock, NULL);
    (*out)->references = 1;
    return MT_OK;
}

mt_choices *mt_choices_share(mt_choices *c)
{
    pthread_mutex_lock(&c->lock);
    c->references++;
    pthread_mutex_unlock(&c->lock);
    return c;
}

void mt_choices_release(mt_choices *c)
{
    if (!c) return;
    pthread_mutex_lock(&c->lock);
    const bool last = --c->references == 0;
    pthread_mutex_unlock(&c->lock);
    if (!last) return;
    pthread_mutex_destroy(&c->lock);
    mt_free(c);
}

/* The key's place, or the empty one where it belongs. */
static choice_entry *place_of(mt_choices *c, const int64_t key[MT_TUNED_KEY])
{
    size_t at = mt_hash(key, sizeof c->places[0].key, 1) % PLACES;
    while (c->places[at].key[0] && memcmp(c->places[at].key, key, sizeof c->places[at].key) != 0) at = (at + 1) % PLACES;
    return &c->places[at];
}

/* A place for a new key. */
static choice_entry *take_place(mt_choices *c, const int64_t key[MT_TUNED_KEY])
{
    if (++c->n_taken > PLACES / 4 * 3) {
        memset(c->places, 0, sizeof c->places);
        c->n_taken = 1;
    }
    choice_entry *e = place_of(c, key);
    memcpy(e->key, key, sizeof e->key);
    c->n_made++;
    return e;
}

bool mt_choices_find(mt_choices *c, const int64_t key[MT_TUNED_KEY], mt_choose choose, void *arg,
                     uint64_t choice[MT_TUNED_CHOICE])
{
    pthread_mutex_lock(&c->lock);
    choice_entry *e = place_of(c, key);
    if (!e->key[0]) {
        e = take_place(c, key);
        e->found = choose(arg, e->choice);
    }
    memcpy(choice, e->choice, sizeof e->choice);
    const bool found = e->found;
    pthread_mutex_unlock(&c->lock);
    return found;
}

int64_t mt_choices_made(mt_choices *c)
{
    pthread_mutex_lock(&c->lock);
    const int64_t n = c->n_made;
    pthread_mutex_unlock(&c->lock);
    return n;
}
