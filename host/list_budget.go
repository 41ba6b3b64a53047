package host

import "time"

const (
	// listBurst is how many pages of a list may be read without a pause.
	listBurst = 20
	// listRefill is how long it takes until one more page may be read. A server that announces changes
	// without end, or a list that is always invalid, must not cost more than that, however many
	// requests need the list.
	listRefill = 5 * time.Second
	// maxListPause bounds the pause after a list of many pages.
	maxListPause = 10 * time.Second
)

// A listBudget bounds how often a list is read. Its zero value is full.
type listBudget struct {
	used float64 // pages
	at   time.Time
}

// wait returns how long the list must not be read, zero if it may be read now.
func (b *listBudget) wait(now time.Time) time.Duration {
	if b.used -= float64(now.Sub(b.at)) / float64(listRefill); b.used < 0 || b.at.IsZero() {
		b.used = 0
	}
	b.at = now
	if b.used <= listBurst-1 {
		return 0
	}
	return time.Duration((b.used-(listBurst-1))*float64(listRefill)) + time.Millisecond
}

// spend records that pages were read.
func (b *listBudget) spend(pages int) {
	const most = listBurst - 1 + float64(maxListPause)/float64(listRefill)
	b.used = min(b.used+float64(pages), most)
}
