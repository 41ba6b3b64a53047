package host

import (
	"maps"
	"slices"
)

// Profiles returns the names of the profiles of the configuration, sorted.
func (h *Host) Profiles() []string { return slices.Sorted(maps.Keys(h.settings.Profiles)) }
