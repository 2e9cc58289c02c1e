/* Calls between two threads, each of which runs a main loop of GLib with a context of its own. */

#include <glib.h>

static GMainContext *own, *other;
static GMainLoop *own_loop, *other_loop;
static double end;
static long trips;

static void call(GMainContext *context, GSourceFunc function)
{
	GSource *source = g_idle_source_new();
	g_source_set_callback(source, function, NULL, NULL);
	g_source_attach(source, context);
	g_source_unref(source);
}

static gboolean answered(gpointer data);

static gboolean answer(gpointer data)
{
	(void)data;
	call(own, answered);
	return G_SOURCE_REMOVE;
}

static gboolean answered(gpointer data)
{
	(void)data;
	trips++;
	if (now() < end)
		call(other, answer);
	else
		g_main_loop_quit(own_loop);
	return G_SOURCE_REMOVE;
}

static gboolean quit(gpointer data)
{
	(void)data;
	g_main_loop_quit(other_loop);
	return G_SOURCE_REMOVE;
}

static long go_on(double seconds)
{
	end = now() + seconds;
	trips = 0;
	call(other, answer);
	g_main_loop_run(own_loop);
	return trips;
}

static gpointer run_other(gpointer data)
{
	(void)data;
	g_main_context_push_thread_default(other);
	g_main_loop_run(other_loop);
	g_main_context_pop_thread_default(other);
	return NULL;
}

int main(int count, char **arguments)
{
	double seconds = atof(arguments[count - 1]);
	own = g_main_context_new();
	other = g_main_context_new();
	own_loop = g_main_loop_new(own, FALSE);
	other_loop = g_main_loop_new(other, FALSE);
	GThread *thread = g_thread_new("other", run_other, NULL);
	g_main_context_push_thread_default(own);
	go_on(seconds / 5);
	struct used before = used();
	long answers = go_on(seconds * 4 / 5);
	say(answers, before);
	call(other, quit);
	g_thread_join(thread);
	return 0;
}
