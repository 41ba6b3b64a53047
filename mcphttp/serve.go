package mcphttp

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"time"
)

// Limits of the HTTP server that [Serve] runs.
const (
	headerTimeout   = 10 * time.Second  // for the headers of a request to arrive
	idleTimeout     = 120 * time.Second // between two requests of a connection
	shutdownTimeout = 12 * time.Second  // 10 for calls to finish, 2 for cancelled ones to be answered
)

// Serve answers requests for one path, such as "/mcp", on a listener until ctx ends. Then it shuts h down in good order
// and returns nil, or the error of the listener if that failed before. The middleware wraps everything that is served, the
// first one outermost: it sees requests for other paths too, such as the well-known ones of authorization.
//
// It is http.Server with limits that suit an open port. To serve several paths, mount h in an http.Server of your own,
// with a ReadHeaderTimeout and an IdleTimeout, and call [Handler.Shutdown] before the server's.
func Serve(ctx context.Context, l net.Listener, path string, h *Handler, middleware ...func(http.Handler) http.Handler) error {
	mux := http.NewServeMux()
	mux.Handle(path, h)
	var outer http.Handler = mux
	for i := len(middleware) - 1; i >= 0; i-- {
		outer = middleware[i](outer)
	}
	server := &http.Server{
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			h.boundBody(w, r) // also if the middleware refuses it, or the path is another one
			outer.ServeHTTP(w, r)
		}),
		ReadHeaderTimeout: headerTimeout,
		IdleTimeout:       idleTimeout,
		MaxHeaderBytes:    h.opts.MaxHeaderBytes,
		ErrorLog:          slog.NewLogLogger(h.opts.Logger.Handler(), slog.LevelWarn),
		// The values of ctx are for handlers; its end comes to them in good order.
		BaseContext: func(net.Listener) context.Context { return context.WithoutCancel(ctx) },
	}
	failed := make(chan error, 1)
	go func() { failed <- server.Serve(l) }() // ends with the server
	select {
	case err := <-failed:
		_ = shutdown(h, server)
		return err
	case <-ctx.Done():
		err := shutdown(h, server)
		if served := <-failed; err == nil && !errors.Is(served, http.ErrServerClosed) {
			err = served
		}
		return err
	}
}

// ListenAndServe is [Serve] on a TCP address. An address without a host, such as ":8080", is a loopback address, which
// only this machine reaches; to be reached from elsewhere, name the interface, such as "0.0.0.0:8080".
func ListenAndServe(ctx context.Context, addr, path string, h *Handler, middleware ...func(http.Handler) http.Handler) error {
	if host, port, err := net.SplitHostPort(addr); err == nil && host == "" {
		addr = net.JoinHostPort("127.0.0.1", port)
	}
	var config net.ListenConfig
	l, err := config.Listen(ctx, "tcp", addr)
	if err != nil {
		return err
	}
	return Serve(ctx, l, path, h, middleware...)
}

// shutdown ends the handler first: the server waits for its streams, but cannot end them.
func shutdown(h *Handler, server *http.Server) error {
	ctx, cancel := context.WithTimeout(context.Background(), shutdownTimeout)
	defer cancel()
	err := errors.Join(h.Shutdown(ctx), server.Shutdown(ctx))
	if err != nil {
		_ = server.Close() // what is left does not listen
	}
	return err
}
