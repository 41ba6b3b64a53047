package console

import (
	"crypto/sha256"
	"fmt"

	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/console/page"
)

// Places of events that no fragment states.
const (
	placeReplace page.Place = "replace" // in place of the element with the same id
	placeRemove  page.Place = "remove"
	placeKeep    page.Place = "keep" // removes the items of the list with the id that are not in IDs
)

// An event is a fragment for a browser, in JSON.
type event struct {
	ID    string     `json:"id"`
	Place page.Place `json:"place"`
	In    string     `json:"in,omitempty"`
	HTML  string     `json:"html,omitempty"`
	IDs   []string   `json:"ids,omitempty"`
}

// eventsOf renders fragments.
func eventsOf(site *page.Site, all []page.Fragment) ([]event, error) {
	var events []event
	for i := range all {
		e, err := eventOf(site, &all[i])
		if err != nil {
			return nil, err
		}
		events = append(events, *e)
	}
	return events, nil
}

func eventOf(site *page.Site, f *page.Fragment) (*event, error) {
	html, err := site.Render(f.Body)
	if err != nil {
		return nil, fmt.Errorf("fragment %s: %w", f.ID, err)
	}
	e := &event{ID: f.ID, Place: placeReplace, HTML: string(html)}
	if f.In != "" {
		e.In, e.Place = f.In, f.Place
	}
	return e, nil
}

// sent contains the fragments that a stream sent to its browser, by ID.
type sent map[string]*sentFragment

type sentFragment struct {
	version string
	digest  [sha256.Size]byte
	pass    int // in which the fragment was part of the page last
	isItem  bool
}

// changes returns the events that bring a browser up to date with fragments. Items of lists that
// are no longer among the fragments are removed.
func (s sent) changes(site *page.Site, all []page.Fragment, pass int) ([]event, error) {
	events := s.kept(all)
	for i := range all {
		f := &all[i]
		old := s[f.ID]
		if old == nil {
			old = &sentFragment{}
			s[f.ID] = old
		}
		old.pass, old.isItem = pass, f.In != ""
		if f.Version != "" && f.Version == old.version {
			continue
		}
		e, err := eventOf(site, f)
		if err != nil {
			return nil, err
		}
		old.version = f.Version
		if digest := sha256.Sum256([]byte(e.HTML)); digest != old.digest {
			old.digest = digest
			events = append(events, *e)
		}
	}
	for id, old := range s {
		if old.pass == pass {
			continue
		}
		delete(s, id)
		if old.isItem {
			events = append(events, event{ID: id, Place: placeRemove})
		}
	}
	return events, nil
}

// kept returns events that remove the items of lists that a page shows since it was loaded, or
// since an earlier stream, and that are gone. Later passes compare with the fragments that they
// sent.
func (s sent) kept(all []page.Fragment) (events []event) {
	if len(s) > 0 {
		return nil
	}
	lists := map[string]int{} // index of its event
	for i := range all {
		f := &all[i]
		if f.In == "" {
			continue
		}
		at, ok := lists[f.In]
		if !ok {
			at = len(events)
			lists[f.In] = at
			events = append(events, event{ID: f.In, Place: placeKeep})
		}
		events[at].IDs = append(events[at].IDs, f.ID)
	}
	return events
}
