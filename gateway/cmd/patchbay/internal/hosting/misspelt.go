package hosting

import (
	"fmt"
	"slices"
	"strings"

	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/cmdutil"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/configs"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/term"
	"github.com/patchbay-mcp/patchbay/gateway/internal/rawjson"
	"github.com/patchbay-mcp/patchbay/host/config"
	"github.com/patchbay-mcp/patchbay/jsonschema"
)

// fileMembers lists the members that Patchbay reads in files of its own form.
var fileMembers = []string{"patchbay", "mcpServers", "servers", "inputs"}

// misspelt returns the unknown members of a file that resemble a known member, in alphabetical
// order. The contents of such a member, a policy for instance, have no effect.
func misspelt(f *configs.File) (names []string) {
	if !IsOwnForm(f.App) {
		return nil
	}
	for name := range f.Extra {
		if !slices.Contains(fileMembers, name) && jsonschema.Nearest(name, fileMembers) != "" {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// misspeltText returns the warning about an unknown member.
func misspeltText(name string) string {
	return fmt.Sprintf("unknown member %q (did you mean %q?): it has no effect", name,
		jsonschema.Nearest(name, fileMembers))
}

// WarnMisspelt prints the unknown members of the files of a configuration.
func WarnMisspelt(f *cmdutil.Factory, c *Config) {
	for _, text := range c.misspelt {
		f.IO.Err.Printf("patchbay: warning: %s", term.CleanLine(text))
	}
}

// removedProtection returns the names of protective settings that a reload removed.
func removedProtection(before, now *config.File) (names []string) {
	for _, name := range []string{"policy", "limits"} {
		_, had := rawjson.Get(before.Extra["patchbay"], name)
		if _, has := rawjson.Get(now.Extra["patchbay"], name); had && !has {
			names = append(names, name)
		}
	}
	return names
}

// WarnRemoved warns of settings that protect servers and that a reload removed.
func WarnRemoved(f *cmdutil.Factory, before, now *config.File) {
	removed := removedProtection(before, now)
	if len(removed) == 0 {
		return
	}
	effect := "requests have the default limits only"
	if slices.Contains(removed, "policy") {
		effect = "requests are allowed without rules"
	}
	f.IO.Err.Printf("patchbay: warning: removed settings: %s: %s", strings.Join(removed, ", "), effect)
}
