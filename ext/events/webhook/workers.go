package webhook

import (
	"context"
	"sync"
)

// maxIdleWorkers limits the goroutines that wait for work. It is the number of connections that are kept to a
// host.
const maxIdleWorkers = 100

// workers call functions in goroutines that are used again. A subscription waits for hours, and the garbage
// collector shrinks its stack meanwhile. If it encoded and sent an event itself, its stack would grow for
// each event: with 10,000 subscriptions that costs a sixth of the CPU of a delivery.
type workers struct {
	ctx  context.Context // ends the workers that wait
	jobs chan func()     // received by workers that wait
	idle chan struct{}   // contains an element for each worker that waits
	all  *sync.WaitGroup // of the goroutines
}

func newWorkers(ctx context.Context, all *sync.WaitGroup) *workers {
	return &workers{ctx: ctx, jobs: make(chan func()), idle: make(chan struct{}, maxIdleWorkers), all: all}
}

// do calls f in a worker and waits until f returns. The number of workers is not limited: a function that
// waits for a slow endpoint delays no other.
func (w *workers) do(f func()) {
	done := make(chan struct{})
	job := func() {
		defer close(done)
		f()
	}
	select {
	case w.jobs <- job:
	default:
		w.all.Go(func() { w.run(job) })
	}
	<-done
}

// run calls job and then others. It returns if enough workers wait already.
func (w *workers) run(job func()) {
	for {
		job()
		select {
		case w.idle <- struct{}{}:
		default:
			return
		}
		select {
		case job = <-w.jobs:
			<-w.idle
		case <-w.ctx.Done():
			return
		}
	}
}
