/* plan.c - what training would need on this machine. */
#include "api/api.h"

#include <stdio.h>

/* A plan that does not fit is a valid answer, not an error. */
static mt_rc answer_plan(const mt_opening *o, megatrain_plan_info *out, mt_err *err)
{
    mt_plan *plan = NULL;
    mt_job job = mt_question_job(&o->q, o->q.batch);
    MT_TRY(mt_train_router_loss(&job.router_loss, &o->s, o->model, err));
    mt_rc rc = mt_plan_auto(&plan, (mt_plan_inputs){ o->model, &job, &o->q.form, &o->q.machine }, err);
    if (rc && rc != MT_ENOMEM) return rc;
    mt__opening_describe(o, plan, out);
    if (rc) snprintf(out->why, sizeof out->why, "%s", err->msg);
    mt_plan_free(plan);
    return MT_OK;
}

static mt_rc plan_config(const megatrain_config *config, megatrain_plan_info *out, mt_err *err)
{
    mt_opening o = { 0 };
    MT_TRY(mt__api_need(out, "out", err));
    *out = (megatrain_plan_info){ 0 };
    mt_rc rc = mt__api_settings(&o.s, config, MT_NEED_MODEL, err);
    if (!rc) rc = mt__opening_open(&o, false, err);
    if (!rc) rc = answer_plan(&o, out, err);
    mt__opening_close(&o);
    return rc;
}

megatrain_status megatrain_plan(const megatrain_config *config, megatrain_plan_info *out, megatrain_error *error)
{
    mt__api_call call = mt__api_begin();
    return mt__api_end(&call, error, plan_config(config, out, &call.err));
}
