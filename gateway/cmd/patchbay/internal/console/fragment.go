package console

import (
	"crypto/sha256"
	"fmt"
)

// A Fragment is a part of a page that the stream updates: one element, with ID as its id.
type Fragment struct {
	ID string
	// Part is the name of a file in templates/part, without its extension, and Data its data.
	Part string
	Data any
	// In is the id of the list that contains the fragment, and Place where a new fragment belongs:
	// fragments are placed in their order. Default: the page contains the fragment, which is replaced.
	In    string
	Place Place
	// Version, if it is not empty, must change whenever the HTML changes. The stream then renders the
	// fragment only after a change.
	Version string
}

// A Place is where a browser puts a fragment.
type Place string

// Places.
const (
	placeReplace Place = "replace" // in place of the element with the same id
	PlaceAppend  Place = "append"  // last in its list, unless the list contains it
	PlacePrepend Place = "prepend" // first in its list, unless the list contains it
	placeRemove  Place = "remove"
	placeKeep    Place = "keep" // removes the items of the list with the id that are not in IDs
)

// An event is a fragment for a browser, in JSON.
type event struct {
	ID    string   `json:"id"`
	Place Place    `json:"place"`
	In    string   `json:"in,omitempty"`
	HTML  string   `json:"html,omitempty"`
	IDs   []string `json:"ids,omitempty"`
}

// events renders fragments.
func (p *pages) events(all []Fragment) ([]event, error) {
	var events []event
	for i := range all {
		e, err := p.event(&all[i])
		if err != nil {
			return nil, err
		}
		events = append(events, *e)
	}
	return events, nil
}

func (p *pages) event(f *Fragment) (*event, error) {
	html, err := p.render("", "part/"+f.Part, f.Data)
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

// changes returns the events that bring a browser up to date with fragments. Items of lists that are
// no longer among the fragments are removed.
func (s sent) changes(p *pages, all []Fragment, pass int) ([]event, error) {
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
		e, err := p.event(f)
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

// kept returns events that remove the items of lists that a page shows since it was loaded, or since
// an earlier stream, and that are gone. Later passes compare with the fragments that they sent.
func (s sent) kept(all []Fragment) (events []event) {
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
