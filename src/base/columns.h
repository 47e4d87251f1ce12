/* columns.h - the columns of a batch: numbers beside the tokens that the data may have and an objective may ask for, in fp32.
 *
 * The data names and reads them (data/batch.h), an objective says which it needs (model/objective.h), and only those travel to the
 * device, where each has a number for every trained row.  A column that nothing asks for has no memory and costs nothing. */
#ifndef MT_BASE_COLUMNS_H
#define MT_BASE_COLUMNS_H

typedef enum mt_column {
    MT_COLUMN_WEIGHT, /* of a document's rows: the loss of a step is the weighted mean over its trained rows */
    MT_COLUMNS
} mt_column;
#define MT_COLUMN_BIT(c) (1u << (c))

#endif
