package host

import (
	"maps"
	"slices"
)

// Profiles returns the names of the profiles of the configuration, sorted.
func (h *Host) Profiles() []string {
	return slices.Sorted(maps.Keys(h.servers.Current().Settings().Profiles))
}

// InProfile reports whether a profile has a server. The empty profile has all, an unknown one none.
func (h *Host) InProfile(profile, server string) bool {
	return h.servers.Current().InProfile(profile, server)
}
