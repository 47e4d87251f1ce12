set(sources page.c run_view.c server.c)
