package linestream

import (
	"context"
	"io"
	"sync"
	"time"

	"github.com/patchbay-mcp/patchbay/internal/peer"
)

// longPast is a deadline that makes pending and later calls fail at once.
var longPast = time.Unix(1, 0)

// interruptWith makes reads or writes under a deadline fail when ctx ends, until stop is called.
func interruptWith(ctx context.Context, setDeadline func(time.Time) error) (stop func()) {
	if setDeadline == nil || ctx.Done() == nil {
		return func() {}
	}
	moved := make(chan struct{})
	cancel := context.AfterFunc(ctx, func() {
		_ = setDeadline(longPast)
		close(moved)
	})
	return func() {
		if !cancel() {
			<-moved
			_ = setDeadline(time.Time{})
		}
	}
}

// A deadlineSource reads on the goroutine of its caller.
type deadlineSource struct {
	r           io.Reader
	setDeadline func(time.Time) error
	buf         []byte
}

func (s *deadlineSource) next(ctx context.Context) ([]byte, error) {
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	defer interruptWith(ctx, s.setDeadline)()
	n, err := readSome(s.r, s.buf)
	return s.buf[:n], err
}

// readSome reads at least a byte, or returns an error.
func readSome(r io.Reader, p []byte) (int, error) {
	const tries = 100 // of a reader that returns neither bytes nor an error
	for range tries {
		if n, err := r.Read(p); n > 0 {
			return n, nil
		} else if err != nil {
			return 0, err
		}
	}
	return 0, io.ErrNoProgress
}

// A pump reads on a goroutine of its own, because a pending read cannot be interrupted. The
// goroutine starts with the first read. It ends with the reader, or at its first read after closed.
type pump struct {
	r      io.Reader
	closed <-chan struct{} // closed with the Conn
	start  sync.Once
	filled chan []byte
	free   chan []byte // two buffers: the first is filled while the other is consumed
	inUse  []byte      // the buffer that is consumed
	err    error       // why filled was closed
}

func (p *pump) next(ctx context.Context) ([]byte, error) {
	p.start.Do(func() {
		p.free <- make([]byte, chunkSize)
		p.free <- make([]byte, chunkSize)
		go p.run()
	})
	if p.inUse != nil {
		p.free <- p.inUse
		p.inUse = nil
	}
	select {
	case b, ok := <-p.filled:
		if !ok {
			return nil, p.err
		}
		p.inUse = b[:cap(b)]
		return b, nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	case <-p.closed:
		return nil, peer.ErrClosed
	}
}

func (p *pump) run() {
	defer close(p.filled)
	p.err = peer.ErrClosed
	for {
		var buf []byte
		select {
		case buf = <-p.free:
		case <-p.closed:
			return
		}
		n, err := readSome(p.r, buf)
		if err != nil {
			p.err = err
			return
		}
		select {
		case p.filled <- buf[:n]:
		case <-p.closed:
			return
		}
	}
}
