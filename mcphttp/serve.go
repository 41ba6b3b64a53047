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
	shutdownTimeout = 12 * time.Second  // 10 for calls to finish, 2 to answer canceled calls
)

// Serve serves a path, such as "/mcp", on a listener until ctx ends. Then it shuts h down and
// returns nil. If the listener fails before, Serve returns its error. The middleware wraps all
// requests, the first outermost. It sees requests for other paths too, such as the well-known
// paths of authorization.
//
// Serve runs an http.Server with limits that suit an open port. To serve several paths, mount h in
// an http.Server with a ReadHeaderTimeout and an IdleTimeout, and call [Handler.Shutdown]
// before the Shutdown of the server.
func Serve(
	ctx context.Context, l net.Listener, path string, h *Handler, middleware ...func(http.Handler) http.Handler,
) error {
	mux := http.NewServeMux()
	mux.Handle(path, h)
	var outer http.Handler = mux
	for i := len(middleware) - 1; i >= 0; i-- {
		outer = middleware[i](outer)
	}
	server := &http.Server{
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			h.limitBodyTime(w, r) // also if a middleware refuses the request, or the path is unknown
			outer.ServeHTTP(w, r)
		}),
		ReadHeaderTimeout: headerTimeout,
		IdleTimeout:       idleTimeout,
		MaxHeaderBytes:    h.opts.MaxHeaderBytes,
		ErrorLog:          slog.NewLogLogger(h.opts.Logger.Handler(), slog.LevelWarn),
		// Handlers see the values of ctx. Shutdown cancels them in order.
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

// ListenAndServe listens on a TCP address and calls [Serve]. It logs the address that it listens on
// to the Logger of h.
//
// An address without a host, such as ":8080", listens on 127.0.0.1, which only this machine
// reaches; unlike in package net it does not listen on all interfaces. To be reached from other
// machines, name an interface, or all of them, as in "0.0.0.0:8080".
//
// Spec: basic/transports/streamable-http#security-&-endpoint
func ListenAndServe(
	ctx context.Context, addr, path string, h *Handler, middleware ...func(http.Handler) http.Handler,
) error {
	note := ""
	if host, port, err := net.SplitHostPort(addr); err == nil && host == "" {
		addr = net.JoinHostPort("127.0.0.1", port)
		note = "only this machine can connect: to listen on all interfaces use 0.0.0.0:" + port
	}
	var config net.ListenConfig
	l, err := config.Listen(ctx, "tcp", addr)
	if err != nil {
		return err
	}
	attrs := []slog.Attr{slog.String("address", l.Addr().String()), slog.String("path", path)}
	if note != "" {
		attrs = append(attrs, slog.String("note", note))
	}
	h.opts.Logger.LogAttrs(ctx, slog.LevelInfo, "mcphttp: listening", attrs...)
	return Serve(ctx, l, path, h, middleware...)
}

// shutdown shuts the handler down before the server: the server waits for streams but does not end
// them.
func shutdown(h *Handler, server *http.Server) error {
	ctx, cancel := context.WithTimeout(context.Background(), shutdownTimeout)
	defer cancel()
	err := errors.Join(h.Shutdown(ctx), server.Shutdown(ctx))
	if err != nil {
		_ = server.Close() // the remaining connections do not end by themselves
	}
	return err
}
