package listing

import "time"

const (
	// listBurst is how often a list may be read without a pause. Several clients that come and go, each
	// of which changes the list, are no reason for a pause.
	listBurst = 60
	// listRefill is how long it takes until it may be read once more. A server that announces changes
	// without end, or a list that is always invalid, must not cost more than that, however many
	// requests need the list.
	listRefill = time.Second
	// pagesPerRead pages, or bytesPerRead bytes, cost as much as to read another list.
	pagesPerRead, bytesPerRead = 20, 256 << 10
	// maxListPause bounds the pause after a long list.
	maxListPause = 10 * time.Second
)

// A budget limits how often a list is read. The zero value is full.
type budget struct {
	used float64 // times that the list was read
	at   time.Time
}

// wait returns how long the list must not be read, zero if it may be read now.
func (b *budget) wait(now time.Time) time.Duration {
	if b.used -= float64(now.Sub(b.at)) / float64(listRefill); b.used < 0 || b.at.IsZero() {
		b.used = 0
	}
	b.at = now
	if b.used <= listBurst-1 {
		return 0
	}
	return time.Duration((b.used-(listBurst-1))*float64(listRefill)) + time.Millisecond
}

// spend records that the list was read, with all its pages and their bytes.
func (b *budget) spend(pages, bytes int) {
	const limit = listBurst - 1 + float64(maxListPause)/float64(listRefill)
	b.used = min(b.used+1+float64(pages)/pagesPerRead+float64(bytes)/bytesPerRead, limit)
}
