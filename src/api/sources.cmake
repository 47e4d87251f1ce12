set(sources chat.c config.c model.c opening.c passes.c plan.c prepare.c question.c text.c train.c)
