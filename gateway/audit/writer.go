package audit

import (
	"errors"
	"slices"
	"time"
)

const (
	// batchTime is how long records without a waiting request are collected, so that a single
	// system call writes them all.
	batchTime = 5 * time.Millisecond
	// retryTime is the time between two attempts to write after a failure.
	retryTime = time.Second
	// syncTime is the most time between a record and its synchronization, in mode SyncSecond.
	syncTime = time.Second
	// maxBatch limits the records of a write, so that segments end near their size.
	maxBatch = 4096
	// maxTrial limits the first write after a failure, which probably fails, too.
	maxTrial = 16
)

// write writes the entries of the queue, until the log is closed.
func (l *Log) write() {
	defer close(l.done)
	var failed []*entry // to be written again
	var retry time.Time // after a failure, unless a request waits
	timer := time.NewTimer(l.chain.due(time.Now()))
	defer timer.Stop()
	for {
		select {
		case <-l.wake:
		case <-timer.C:
		}
		if !l.isUrgent() {
			if time.Now().Before(retry) {
				continue // the timer is set
			}
			time.Sleep(batchTime)
		}
		batch, dropped, closed := l.nextBatch(failed)
		failed = append(failed, batch...)
		err := l.store(&failed, dropped)
		now := time.Now()
		if err == nil || errors.Is(err, errSize) {
			if failed := l.chain.keep(now); failed != nil && err == nil {
				err = &StoreError{l.opts.Dir, failed}
			}
		}
		l.report(err, len(failed))
		if closed && (err != nil || len(failed) == 0) {
			l.end(len(failed))
			return
		}
		wait := l.chain.due(now)
		retry = time.Time{}
		if err != nil {
			wait, retry = retryTime, now.Add(retryTime)
		}
		timer.Reset(wait)
	}
}

// isUrgent reports whether a request waits for an entry, or [Log.Close] does.
func (l *Log) isUrgent() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.waiting > 0 || l.closed
}

// nextBatch empties the queue. It drops entries that would exceed the limit together with the
// entries kept after a failure.
func (l *Log) nextBatch(kept []*entry) (batch []*entry, dropped int, closed bool) {
	count, size := len(kept), 0
	for _, e := range kept {
		size += e.size
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, e := range l.queue {
		switch {
		case count < l.opts.queue && (size == 0 || size+e.size <= maxQueueBytes):
			count, size = count+1, size+e.size
			batch = append(batch, e)
		case e.stored != nil:
			e.stored <- ErrFull
		default:
			l.drop()
		}
	}
	l.queue, l.bytes, l.waiting, l.kept = nil, 0, 0, count
	dropped, l.dropped = l.dropped, 0
	return batch, dropped, l.closed
}

// store writes entries in batches, and leaves the entries that must be written again.
func (l *Log) store(entries *[]*entry, dropped int) error {
	if dropped > 0 {
		e := &entry{event: eventDropped, detail: map[string]int{"records": dropped}}
		*entries = append([]*entry{e}, *entries...)
	}
	most := maxBatch
	if l.Err() != nil {
		most = maxTrial
	}
	for len(*entries) > 0 {
		batch := (*entries)[:min(len(*entries), most)]
		most = maxBatch
		if err := l.chain.append(batch); err != nil {
			err = &StoreError{l.opts.Dir, err}
			*entries = refuse(*entries, err)
			return err
		}
		for _, e := range batch {
			if e.stored != nil {
				e.stored <- nil
			}
		}
		*entries = (*entries)[len(batch):]
	}
	*entries = nil
	return nil
}

// refuse returns an error to the waiting requests, and returns the other entries.
func refuse(entries []*entry, err error) (rest []*entry) {
	if !slices.ContainsFunc(entries, func(e *entry) bool { return e.stored != nil }) {
		return entries
	}
	for _, e := range entries {
		if e.stored != nil {
			e.stored <- err
			continue
		}
		rest = append(rest, e)
	}
	return rest
}

// report logs the first of several equal outcomes. kept is the number of entries to write again.
func (l *Log) report(err error, kept int) {
	l.mu.Lock()
	before := l.failure
	l.failure, l.kept = err, kept
	l.mu.Unlock()
	switch {
	case err != nil && before == nil:
		l.opts.Logger.Error("audit: records cannot be written", "dir", l.opts.Dir, "error", err)
	case err == nil && before != nil:
		l.opts.Logger.Info("audit: records are written again", "dir", l.opts.Dir)
	}
}

// end writes the end of a chain, and closes its files.
func (l *Log) end(lost int) {
	if lost > 0 {
		l.opts.Logger.Error("audit: records are lost", "dir", l.opts.Dir, "records", lost)
	}
	err := l.Err()
	if failed := l.chain.close(err == nil); err == nil && failed != nil {
		err = &StoreError{l.opts.Dir, failed}
	}
	l.mu.Lock()
	l.failure, l.kept = err, 0
	l.lost += uint64(lost)
	l.mu.Unlock()
}
