package sandbox

import (
	"os"
	"strings"
)

// readSetting returns a setting of the kernel, or "".
func readSetting(name string) string {
	text, _ := os.ReadFile("/proc/sys/" + name) // an error means that this kernel lacks it
	return strings.TrimSpace(string(text))
}

// hint returns advice for an error message of bwrap, or "".
func hint(reason string, setting func(name string) string) string {
	switch {
	case strings.Contains(reason, "Unknown option"):
		return ": it is too old: install version 0.8.0 or newer of the package bubblewrap"
	case setting("user/max_user_namespaces") == "0":
		return ": the kernel forbids user namespaces: set the sysctl user.max_user_namespaces to 10000"
	case setting("kernel/unprivileged_userns_clone") == "0" && os.Getuid() != 0:
		return ": the kernel forbids user namespaces: set the sysctl kernel.unprivileged_userns_clone to 1"
	case setting("kernel/apparmor_restrict_unprivileged_userns") == "1" && os.Getuid() != 0:
		return ": AppArmor forbids user namespaces: add a profile for " +
			"bwrap with the rule userns, or set the sysctl kernel.apparmor_restrict_unprivileged_userns to 0"
	case strings.Contains(reason, "namespace"), strings.Contains(reason, "uid map"),
		strings.Contains(reason, "not permitted"), strings.Contains(reason, "Permission denied"):
		return ": the machine or its container forbids namespaces or mounts: a container must permit the system " +
			"calls clone, mount, pivot_root and unshare, and must not mask files of /proc"
	}
	return ""
}
