/* choices.h - which kernel multiplies which shape, chosen once and then used by every device of a run.
 *
 * Kernels add in different orders, so lanes whose kernels differ would give other bits than one lane.  Lanes on one kind of GPU
 * therefore share one table: the first lane that meets a shape makes the choice under the table's lock, by what the first
 * device is (its kind, its processors), and the others find it.  A choice is a function of the key alone: neither free memory
 * nor the lane that happens to ask decides it.
 *
 * Any number of threads.  Every device holds a reference; the table goes with the last one. */
#ifndef MT_DEVICE_CHOICES_H
#define MT_DEVICE_CHOICES_H

#include "device/tuned.h"

typedef struct mt_choices mt_choices;

mt_rc mt_choices_create(mt_choices **out, mt_err *err);
mt_choices *mt_choices_share(mt_choices *c); /* one more reference */
void mt_choices_release(mt_choices *c);      /* accepts NULL */

/* Chooses for a new key; false: no kernel supports it, which is remembered, too. */
typedef bool (*mt_choose)(void *arg, uint64_t choice[MT_TUNED_CHOICE]);
/* The choice for the key (key[0] is not 0), made by `choose` if it is new. */
bool mt_choices_find(mt_choices *c, const int64_t key[MT_TUNED_KEY], mt_choose choose, void *arg,
                     uint64_t choice[MT_TUNED_CHOICE]);
/* Choices made, ever. */
int64_t mt_choices_made(mt_choices *c);

#endif
