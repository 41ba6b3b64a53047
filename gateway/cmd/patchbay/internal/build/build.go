// Package build identifies the build of patchbay.
package build

import (
	"runtime/debug"
	"strings"
)

// Version returns the version of the module in the build information.
func Version() string {
	info, ok := debug.ReadBuildInfo()
	if !ok || info.Main.Version == "" {
		return "devel"
	}
	return strings.Trim(info.Main.Version, "()")
}
