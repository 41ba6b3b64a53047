package term

import (
	"fmt"
	"slices"
	"strings"

	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/flags"
	"github.com/patchbay-mcp/patchbay/jsonschema"
)

// UnknownName returns an error for an unknown name. It suggests a similar name or lists the names.
func UnknownName(thing, name string, known []string) error {
	text := fmt.Sprintf("unknown %s %q", thing, Shorten(name, MaxNameShown))
	if like := jsonschema.Nearest(name, known); like != "" {
		return fmt.Errorf("%s: did you mean %q?", text, CleanLine(like))
	}
	known = slices.Clone(known)
	for i, name := range known {
		known[i] = Shorten(name, MaxNameShown)
	}
	const shown = 20
	switch {
	case len(known) == 0:
		return fmt.Errorf("%s (none available)", text)
	case len(known) > shown:
		return fmt.Errorf("%s: want one of %s and %d more", text, CleanLine(strings.Join(known[:shown], ", ")),
			len(known)-shown)
	}
	return fmt.Errorf("%s: want %s", text, CleanLine(flags.OneOf(known)))
}

// MaxNameShown bounds a name of a configuration file or server in messages, in characters.
const MaxNameShown = 100

// MaxDoesShown bounds the command or URL in the list, in characters.
const MaxDoesShown = 300
