package servercard

import (
	"fmt"
	"slices"
	"strings"

	"github.com/go-json-experiment/json/jsontext"
)

// specVersion is the version of AI Catalog that is served. Spec: AI Catalog, Version Handling.
const specVersion = "1.0"

// maxEntries limits the entries of a catalogue that are read. Each may need a request.
const maxEntries = 8

// A catalog lists the documents of a site. Other members are ignored, also signatures, because no
// decision depends on them.
//
// Spec: AI Catalog, Top-Level Structure.
type catalog struct {
	SpecVersion string  `json:"specVersion"`
	Entries     []entry `json:"entries"`
}

// An entry names a document, or contains it.
type entry struct {
	Identifier string         `json:"identifier"`
	Type       string         `json:"type"`
	URL        string         `json:"url,omitzero"`
	Data       jsontext.Value `json:"data,omitzero"`
}

// cards returns the entries of server cards. Nested catalogues are not read.
func (c *catalog) cards() ([]entry, error) {
	major, minor, ok := strings.Cut(c.SpecVersion, ".")
	if !ok || major != "0" && major != "1" || minor == "" {
		return nil, fmt.Errorf("unknown specVersion %.32q: must be 0.9 or 1.x", c.SpecVersion)
	}
	cards := slices.DeleteFunc(c.Entries, func(e entry) bool { return e.Type != MediaType })
	if len(cards) > maxEntries {
		return cards[:maxEntries], fmt.Errorf("the catalogue has %d server cards: only the first %d are read",
			len(cards), maxEntries)
	}
	return cards, nil
}

// identifier returns the identifier of a card in a catalogue. Spec: docs/discovery.md, Server Card
// Entries.
func identifier(name string) string {
	domain, name, _ := strings.Cut(name, "/")
	labels := strings.Split(domain, ".")
	slices.Reverse(labels)
	return "urn:air:" + strings.Join(labels, ".") + ":mcp:" + name
}
