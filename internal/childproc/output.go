package childproc

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os/exec"
	"runtime"
	"strings"
	"time"
)

// pipeTimeout is how long a process that left the group may keep standard output open after the
// command exited.
const pipeTimeout = time.Second

// Output runs a command without standard input and returns its standard output, of at most limit
// bytes. When the command exited or ctx ends, its process group is killed. The error contains the
// last text of standard error, cut and in quotes, and no standard output.
func Output(ctx context.Context, cmd *exec.Cmd, limit int) ([]byte, error) {
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	stdout, stderr := &limitedBuffer{limit: limit}, &lastBytes{}
	cmd.Stdout, cmd.Stderr, cmd.WaitDelay = stdout, stderr, pipeTimeout
	group := newProcessGroup(cmd)
	defer group.release()
	started, exited := make(chan error, 1), make(chan error, 1)
	go func() { // see Process.wait
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := cmd.Start()
		if err == nil {
			group.add(cmd.Process)
		}
		started <- err
		if err == nil {
			exited <- cmd.Wait()
		}
	}()
	if err := <-started; err != nil {
		return nil, err
	}
	var err error
	select {
	case err = <-exited:
	case <-ctx.Done():
		group.kill()
		<-exited //nolint:errcheck // the command was killed
		return nil, context.Cause(ctx)
	}
	if !group.hasEnded() {
		group.kill()
	}
	switch {
	case stdout.full:
		return nil, fmt.Errorf("more than %d bytes of output", limit)
	case errors.Is(err, exec.ErrWaitDelay): // the command itself exited successfully
		err = nil
	case err != nil && len(stderr.text) > 0:
		err = fmt.Errorf("%w: %q", err, strings.TrimSpace(string(stderr.text)))
	}
	return stdout.text.Bytes(), err
}

// A limitedBuffer keeps text up to a limit.
type limitedBuffer struct {
	text  bytes.Buffer
	limit int
	full  bool
}

func (b *limitedBuffer) Write(p []byte) (int, error) {
	if b.full = b.full || b.text.Len()+len(p) > b.limit; b.full {
		return 0, errors.New("output is too large")
	}
	return b.text.Write(p)
}

// lastBytes keeps the end of a text.
type lastBytes struct{ text []byte }

func (l *lastBytes) Write(p []byte) (int, error) {
	const most = 200 // about two lines
	l.text = append(l.text, p[max(0, len(p)-most):]...)
	l.text = bytes.Clone(l.text[max(0, len(l.text)-most):])
	return len(p), nil
}
