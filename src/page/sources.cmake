set(sources page.c request.c run_view.c server.c)
