package audit

import (
	"context"
	"io"
	"iter"
	"slices"
	"strings"
	"time"
)

// followTime is the time between two looks for new records.
const followTime = 250 * time.Millisecond

// Follow returns the last records of a folder, and then new records as they are written, until ctx
// ends. It skips lines that are not records.
func Follow(ctx context.Context, dir string, last int) iter.Seq2[*Entry, error] {
	return func(yield func(*Entry, error) bool) {
		read := map[string]int64{} // offsets by path
		batch, err := newEntries(dir, read)
		batch = batch[max(0, len(batch)-last):]
		tick := time.NewTicker(followTime)
		defer tick.Stop()
		for {
			for _, e := range batch {
				if !yield(e, nil) {
					return
				}
			}
			if err != nil {
				yield(nil, err)
				return
			}
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
			}
			batch, err = newEntries(dir, read)
		}
	}
}

// newEntries returns the entries behind offsets, in the order of their times, and moves the offsets.
func newEntries(dir string, read map[string]int64) (found []*Entry, err error) {
	all, err := segments(dir)
	if err != nil {
		return nil, err
	}
	for _, files := range all {
		for _, f := range files {
			r, err := openLines(f.path)
			if err != nil {
				continue // it was just removed because of its age
			}
			start := read[f.path]
			if _, err = r.file.Seek(start, io.SeekStart); err == nil {
				for r.next() {
					if e, err := parseEntry(f.chain, r.line); err == nil {
						found = append(found, e)
					}
				}
			}
			read[f.path] = start + r.offset
			r.close()
		}
	}
	slices.SortStableFunc(found, func(a, b *Entry) int {
		if a.Chain == b.Chain {
			return int(a.Seq) - int(b.Seq)
		}
		if c := a.Time.Compare(b.Time); c != 0 {
			return c
		}
		return strings.Compare(a.Chain, b.Chain)
	})
	return found, nil
}
