package childproc

import (
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// packageRunners are programs that may download a server before they start it.
var packageRunners = []string{"npx", "npm", "pnpm", "pnpx", "yarn", "bun", "bunx", "deno", "uv", "uvx", "pipx",
	"docker", "podman", "dnx", "nix"}

// RunnerTimeout is how long a server that a package runner starts may take to respond for the first
// time: enough to download an image or a package with its dependencies.
const RunnerTimeout = 3 * time.Minute

// IsPackageRunner reports whether the program at a path may download a server before it starts it.
func IsPackageRunner(path string) bool {
	name := strings.ToLower(filepath.Base(path))
	return slices.Contains(packageRunners, strings.TrimSuffix(strings.TrimSuffix(name, ".exe"), ".cmd"))
}
