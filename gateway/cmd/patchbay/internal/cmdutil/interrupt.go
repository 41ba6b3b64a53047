package cmdutil

import (
	"context"
	"os"
	"os/signal"
	"sync"
	"syscall"
)

// interrupts decides whether SIGINT ends the program or is handled by a shell.
type interrupts struct {
	mu     sync.Mutex // guards the field below
	handle func()     // nil to end the program
}

type interruptsKey struct{}

// NotifyContext returns a context for [Run] that SIGINT and SIGTERM cancel. A second signal kills
// the program. While a shell runs on a terminal, SIGINT cancels its command and not the context.
func NotifyContext(parent context.Context) context.Context {
	i := &interrupts{}
	ctx, cancel := context.WithCancel(context.WithValue(parent, interruptsKey{}, i))
	received := make(chan os.Signal, 1)
	signal.Notify(received, os.Interrupt, syscall.SIGTERM)
	go func() { // ends with the program
		for s := range received {
			if s == os.Interrupt && i.interrupt() {
				continue
			}
			signal.Stop(received)
			cancel()
			return
		}
	}()
	return ctx
}

// interrupt reports whether a shell handled SIGINT.
func (i *interrupts) interrupt() bool {
	i.mu.Lock()
	handle := i.handle
	i.mu.Unlock()
	if handle != nil {
		handle()
	}
	return handle != nil
}

// OnInterrupt lets handle handle SIGINT until stop is called.
func OnInterrupt(ctx context.Context, handle func()) (stop func()) {
	i, ok := ctx.Value(interruptsKey{}).(*interrupts)
	if !ok {
		return func() {}
	}
	set := func(handle func()) {
		i.mu.Lock()
		defer i.mu.Unlock()
		i.handle = handle
	}
	set(handle)
	return func() { set(nil) }
}
