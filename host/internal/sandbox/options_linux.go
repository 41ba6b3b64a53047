package sandbox

import (
	"cmp"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"github.com/patchbay-mcp/patchbay/host/config"
)

const (
	// home and temporary are the home directory of the sandbox and its folder of temporary files. They are empty
	// at the start and end with the process.
	home, temporary = "/home/sandbox", "/tmp"
	// memoryFiles limits each of /tmp and the home directory, in bytes: their files are in memory. A package of
	// npm or PyPI with its dependencies fits. sharedFiles limits /dev/shm.
	memoryFiles, sharedFiles = 512 << 20, 64 << 20
	// prlimit sets resource limits in the sandbox. It is not from PATH, which may name another program.
	prlimit = "/usr/bin/prlimit"
)

// systemFiles are files and folders of the system that programs need: libraries, links of alternative
// programs, the time zone, and certificates without their private keys.
var systemFiles = []string{"/etc/alternatives", "/etc/ld.so.cache", "/etc/ld.so.conf", "/etc/ld.so.conf.d",
	"/etc/localtime", "/etc/nsswitch.conf", "/etc/ssl/certs", "/etc/ssl/cert.pem", "/etc/ssl/openssl.cnf",
	"/etc/ca-certificates/extracted", "/etc/pki/tls/certs", "/etc/pki/ca-trust/extracted"}

// networkFiles are the files by which programs find other machines.
var networkFiles = []string{"/etc/resolv.conf", "/etc/hosts", "/etc/services"}

// A machine describes the parts of this machine that the options depend on.
type machine struct {
	links map[string]string // the targets of symbolic links among systemFolders
	real  map[string]string // the real paths of the existing folders and files of the system
}

// examine describes this machine.
func examine() machine {
	m := machine{map[string]string{}, map[string]string{}}
	for _, dir := range systemFolders {
		if target, err := os.Readlink(dir); err == nil {
			m.links[dir] = target
		} else if _, err := os.Stat(dir); err == nil {
			m.real[dir] = dir
		}
	}
	for _, file := range slices.Concat(systemFiles, networkFiles) {
		if real, err := filepath.EvalSymlinks(file); err == nil { // /etc/resolv.conf may lead to /run
			m.real[file] = real
		}
	}
	return m
}

// isolation returns the options of the namespaces and rights. None of them is optional for bwrap, unlike
// --unshare-all.
func isolation(s *config.Sandbox) []string {
	options := []string{"--unshare-user", "--disable-userns", "--unshare-ipc", "--unshare-pid", "--unshare-uts",
		"--unshare-cgroup", "--hostname", "sandbox", "--new-session", "--die-with-parent", "--cap-drop", "ALL"}
	if s.Network != config.NetworkHost {
		options = append(options, "--unshare-net")
	}
	return options
}

// system returns the options of the files of the system, which the sandbox may only read, and of its own empty
// folders.
func system(m machine, s *config.Sandbox) (options []string) {
	files := slices.Concat(systemFolders, systemFiles)
	if s.Network == config.NetworkHost {
		files = append(files, networkFiles...)
	}
	for _, path := range files {
		if target, ok := m.links[path]; ok {
			options = append(options, "--symlink", target, path)
		} else if real, ok := m.real[path]; ok {
			options = append(options, "--ro-bind", real, path)
		}
	}
	memory := strconv.Itoa(memoryFiles)
	// Without capabilities, root may still change settings of the kernel in a writable /proc.
	return append(options, "--proc", "/proc", "--remount-ro", "/proc", "--dev", "/dev",
		"--size", strconv.Itoa(sharedFiles), "--tmpfs", "/dev/shm", "--remount-ro", "/dev",
		"--size", memory, "--tmpfs", temporary, "--size", memory, "--tmpfs", home)
}

// mounts returns the options of the folders of the settings. The root is read-only after them.
func mounts(all []folder) (options []string) {
	for _, f := range all {
		option := "--ro-bind"
		if f.write {
			option = "--bind"
		}
		options = append(options, option, f.source, f.path)
	}
	return append(options, "--remount-ro", "/")
}

// environment returns the options of the variables of a server.
func environment(env map[string]string) []string {
	all := map[string]string{"PATH": os.Getenv("PATH"), "LANG": cmp.Or(os.Getenv("LANG"), "C.UTF-8"), "HOME": home,
		"TMPDIR": temporary}
	maps.Copy(all, env)
	options := []string{"--clearenv"}
	for _, name := range slices.Sorted(maps.Keys(all)) {
		options = append(options, "--setenv", name, all[name])
	}
	return options
}

// limitCommand returns the command that sets the resource limits of the settings, or nil without limits.
func limitCommand(s *config.Sandbox) ([]string, error) {
	var limits []string
	for _, l := range []struct {
		option string
		value  int64
	}{
		{"--as", int64(s.AddressSpace)}, {"--nproc", int64(s.Processes)},
		{"--cpu", int64(time.Duration(s.CPUTime) / time.Second)}, {"--nofile", int64(s.OpenFiles)},
		{"--fsize", int64(s.FileSize)},
	} {
		if l.value > 0 {
			limits = append(limits, fmt.Sprintf("%s=%d", l.option, l.value))
		}
	}
	if len(limits) == 0 {
		return nil, nil
	}
	if s.Processes > 0 && os.Getuid() == 0 {
		return nil, &Error{"\"processes\" cannot be enforced, because Linux does not apply RLIMIT_NPROC to root: " +
			"run the gateway as another user, or use \"processes\" of \"limits\", which a cgroup enforces"}
	}
	if _, err := os.Stat(prlimit); err != nil {
		return nil, &Error{prlimit + " is missing, which sets the resource limits: install the package util-linux"}
	}
	return append(append([]string{prlimit}, limits...), "--"), nil
}
