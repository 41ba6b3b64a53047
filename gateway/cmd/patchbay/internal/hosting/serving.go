package hosting

import (
	"context"
	"errors"
	"net"
	"sync"
	"time"
)

// noticeTime is how long a process of several serves new requests after it was told to end. Its readiness is over
// then, so that a load balancer that asks each second sends its requests to other processes.
const noticeTime = 5 * time.Second

// Serving returns a context and a listener for a server. The context ends with ctx. If the server is one of several
// processes, the context ends noticeTime later, and the listener then refuses connections while calls are still
// running, so that a load balancer without checks uses another process, too.
func (s *Stores) Serving(ctx context.Context, l net.Listener) (context.Context, net.Listener) {
	if s.Durable() == nil {
		return ctx, l
	}
	serving, end := context.WithCancelCause(context.WithoutCancel(ctx))
	context.AfterFunc(ctx, func() {
		time.AfterFunc(noticeTime, func() {
			_ = l.Close() // the server closes it again
			end(context.Cause(ctx))
		})
	})
	return serving, &leaving{Listener: l, closed: make(chan struct{})}
}

// A leaving listener is closed before its server ends.
type leaving struct {
	net.Listener
	once   sync.Once
	closed chan struct{} // closed by the server
}

func (l *leaving) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if errors.Is(err, net.ErrClosed) {
		<-l.closed // a server whose listener fails ends at once
	}
	return c, err
}

func (l *leaving) Close() error {
	l.once.Do(func() { close(l.closed) })
	if err := l.Listener.Close(); !errors.Is(err, net.ErrClosed) { // it is closed when the gateway leaves
		return err
	}
	return nil
}
