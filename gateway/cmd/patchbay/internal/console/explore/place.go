package explore

import (
	"net/url"
	"slices"
	"strconv"
)

// An explorePlace identifies the content of a page of the screen, as the URL states it.
type explorePlace struct {
	Server, Name, Filter, Tab string
	As                        string // the person whose lists are viewed, or ""
	Kind                      itemKind
	Run, Draft                int
	With                      int // the run that the run is compared with
}

func placeOf(q url.Values) explorePlace {
	number := func(name string) int { n, _ := strconv.Atoi(q.Get(name)); return n }
	p := explorePlace{Server: q.Get("server"), Name: q.Get("name"), Filter: q.Get("q"), Tab: q.Get("tab"),
		As:   q.Get("as"),
		Kind: itemKind(q.Get("kind")), Run: number("run"), Draft: number("draft"), With: number("with")}
	if tool := q.Get("tool"); tool != "" {
		p.Kind, p.Name = kindTools, tool
	}
	if !slices.Contains(itemKinds, p.Kind) {
		p.Kind = kindTools
	}
	return p
}

// URL returns the path of the page, with its query.
func (p explorePlace) URL() string {
	q := url.Values{"server": {p.Server}, "kind": {string(p.Kind)}}
	for name, value := range map[string]string{"name": p.Name, "q": p.Filter, "tab": p.Tab, "as": p.As} {
		if value != "" {
			q.Set(name, value)
		}
	}
	for name, value := range map[string]int{"run": p.Run, "draft": p.Draft, "with": p.With} {
		if value != 0 {
			q.Set(name, strconv.Itoa(value))
		}
	}
	return "/explore?" + q.Encode()
}

// To returns the URL of an item in the same list.
func (p explorePlace) To(name string) string {
	return explorePlace{Server: p.Server, Kind: p.Kind, Name: name, Filter: p.Filter, As: p.As}.URL()
}

// ToKind returns the URL of another list of the server.
func (p explorePlace) ToKind(kind itemKind) string {
	return explorePlace{Server: p.Server, Kind: kind, As: p.As}.URL()
}

// ToTab returns the URL of another tab of the item.
func (p explorePlace) ToTab(tab string) string {
	p.Tab = tab
	return p.URL()
}

// Place returns the URL of the page of a run.
func (r *run) Place() string { return r.place().URL() }

// place returns the page of a run.
func (r *run) place() explorePlace {
	return explorePlace{Server: r.Server, Kind: r.Item.Kind, Name: r.Item.Name, Run: r.ID}
}
