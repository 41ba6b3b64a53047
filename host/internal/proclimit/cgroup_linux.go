package proclimit

import (
	"bufio"
	"bytes"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

// dataLimited is true: Linux counts all private memory that can be written as data.
const dataLimited = true

const (
	// cgroupPrefix begins the names of cgroups. The id of this process and a random text follow.
	cgroupPrefix = "patchbay-"
	// cpuPeriod is the period in which the time of processors is limited, in microseconds: the
	// default of the kernel.
	cpuPeriod = 100_000
	// minQuota is the smallest time per period that the kernel accepts, in microseconds.
	minQuota = 1000
	// removeTimeout is how long the processes of a cgroup may take to end after the kill.
	removeTimeout = 3 * time.Second
)

// A cgroup is a directory below /sys/fs/cgroup in which the processes of a server are started.
//
// Spec: https://docs.kernel.org/admin-guide/cgroup-v2.html.
type cgroup struct {
	dir      *os.File
	removing sync.Once
	err      error
}

// enter makes a cgroup with as many of the limits as possible, and returns the remaining limits.
// The cgroup is nil if it would limit nothing.
func enter(l Limits) (*cgroup, Limits) {
	wanted := controllers(l)
	if len(wanted) == 0 {
		return nil, l
	}
	var best string
	var offered []string
	for _, dir := range ancestors() {
		if has := enable(dir, wanted); len(has) > len(offered) {
			best, offered = dir, has
		}
	}
	if len(offered) == 0 {
		return nil, l
	}
	c, err := newCgroup(best, l, offered)
	if err != nil {
		return nil, l
	}
	for _, controller := range offered {
		switch controller {
		case "memory":
			l.Memory = 0
		case "pids":
			l.Processes = 0
		case "cpu":
			l.CPU = 0
		}
	}
	return c, l
}

// controllers returns the controllers that limits need.
func controllers(l Limits) (names []string) {
	if l.Memory > 0 {
		names = append(names, "memory")
	}
	if l.Processes > 0 {
		names = append(names, "pids")
	}
	if l.CPU > 0 {
		names = append(names, "cpu")
	}
	return names
}

// ancestors returns the directories of the cgroup of this process and of the cgroups above it.
func ancestors() (dirs []string) {
	mount, root := cgroupMount("/proc/self/mountinfo")
	own, err := os.ReadFile("/proc/self/cgroup")
	if mount == "" || err != nil {
		return nil
	}
	for line := range strings.Lines(string(own)) {
		path, ok := strings.CutPrefix(strings.TrimSuffix(line, "\n"), "0::")
		if !ok {
			continue
		}
		rel, err := filepath.Rel(root, path)
		if err != nil || !filepath.IsLocal(rel) {
			return nil // the cgroup is outside of the namespace
		}
		for dir := filepath.Join(mount, rel); strings.HasPrefix(dir, mount); dir = filepath.Dir(dir) {
			dirs = append(dirs, dir)
		}
	}
	return dirs
}

// cgroupMount returns the directory where cgroups of version 2 are mounted, and the cgroup that is
// its root.
func cgroupMount(mountinfo string) (mount, root string) {
	f, err := os.Open(mountinfo)
	if err != nil {
		return "", ""
	}
	defer f.Close()
	for lines := bufio.NewScanner(f); lines.Scan(); {
		before, after, _ := strings.Cut(lines.Text(), " - ")
		fields := strings.Fields(before)
		if strings.HasPrefix(after, "cgroup2 ") && len(fields) > 4 && !strings.Contains(fields[4], `\`) {
			return fields[4], fields[3]
		}
	}
	return "", ""
}

// enable returns the controllers that cgroups in a directory can use, and enables the others of
// wanted. Enabling fails in a cgroup of another owner, and in a cgroup that contains processes.
func enable(dir string, wanted []string) (enabled []string) {
	control := filepath.Join(dir, "cgroup.subtree_control")
	offered, _ := os.ReadFile(filepath.Join(dir, "cgroup.controllers"))
	for _, controller := range wanted {
		on, _ := os.ReadFile(control)
		has := slices.Contains(strings.Fields(string(on)), controller)
		if !has && slices.Contains(strings.Fields(string(offered)), controller) {
			has = os.WriteFile(control, []byte("+"+controller), 0) == nil
		}
		if has {
			enabled = append(enabled, controller)
		}
	}
	return enabled
}

// newCgroup makes a cgroup in a directory and sets the limits of some controllers. It starts a
// process there, since the system may refuse that although the directory can be written.
func newCgroup(parent string, l Limits, controllers []string) (*cgroup, error) {
	removeOld(parent)
	name := fmt.Sprintf("%s%d-%s", cgroupPrefix, os.Getpid(), rand.Text()[:10])
	path := filepath.Join(parent, name)
	if err := os.Mkdir(path, 0o755); err != nil {
		return nil, err
	}
	dir, err := os.Open(path)
	if err != nil {
		_ = os.Remove(path) // it is empty
		return nil, err
	}
	c := &cgroup{dir: dir}
	if err = c.limit(l, controllers); err == nil {
		probe := &exec.Cmd{Path: shell, Args: []string{"sh", "-c", ":"}, Env: []string{}, Dir: "/"}
		c.prepare(probe)
		err = probe.Run()
	}
	if err != nil {
		_ = c.close() // it is empty
		return nil, err
	}
	return c, nil
}

// removeOld removes the empty cgroups of processes that were killed.
func removeOld(parent string) {
	old, _ := filepath.Glob(filepath.Join(parent, cgroupPrefix+"*"))
	for _, path := range old {
		pid, _, _ := strings.Cut(strings.TrimPrefix(filepath.Base(path), cgroupPrefix), "-")
		if n, err := strconv.Atoi(pid); err == nil && n > 0 && errors.Is(syscall.Kill(n, 0), syscall.ESRCH) {
			_ = os.Remove(path) // fails while it contains processes
		}
	}
}

func (c *cgroup) limit(l Limits, controllers []string) error {
	for _, controller := range controllers {
		var err error
		switch controller {
		case "memory":
			// Swap would hide that the limit has been reached. Some systems lack these two files.
			_ = c.set("memory.swap.max", "0")
			_ = c.set("memory.oom.group", "1") // no server goes on without some of its processes
			err = c.set("memory.max", strconv.FormatInt(l.Memory, 10))
		case "pids":
			err = c.set("pids.max", strconv.Itoa(l.Processes))
		case "cpu":
			quota := max(int64(math.Round(l.CPU*cpuPeriod)), minQuota)
			err = c.set("cpu.max", fmt.Sprintf("%d %d", quota, cpuPeriod))
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// set writes a file of the cgroup. The file exists if the kernel supports the feature.
func (c *cgroup) set(file, value string) error {
	f, err := os.OpenFile(filepath.Join(c.dir.Name(), file), os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	_, err = f.WriteString(value)
	return errors.Join(err, f.Close())
}

// prepare makes the process of a command start in the cgroup.
func (c *cgroup) prepare(cmd *exec.Cmd) {
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	cmd.SysProcAttr.UseCgroupFD, cmd.SysProcAttr.CgroupFD = true, int(c.dir.Fd())
}

// close kills the processes of the cgroup and removes it.
func (c *cgroup) close() error {
	c.removing.Do(func() {
		defer c.dir.Close()
		path := c.dir.Name()
		for begun, wait := time.Now(), time.Millisecond; ; wait = min(2*wait, 50*time.Millisecond) {
			c.err = removeAll(path)
			if c.err == nil || errors.Is(c.err, fs.ErrNotExist) || time.Since(begun) > removeTimeout {
				return
			}
			c.kill()
			time.Sleep(wait) // no event reports that the last process has ended
		}
	})
	if errors.Is(c.err, fs.ErrNotExist) {
		return nil
	}
	return c.err
}

// removeAll removes a cgroup and the cgroups that its processes have created in it.
func removeAll(path string) error {
	below, _ := filepath.Glob(filepath.Join(path, "*", "cgroup.procs"))
	for _, procs := range below {
		if err := removeAll(filepath.Dir(procs)); err != nil {
			return err
		}
	}
	return os.Remove(path)
}

// kill kills all processes of the cgroup. Kernels before 5.14 lack the file for it, so kill then
// signals each process.
func (c *cgroup) kill() {
	if c.set("cgroup.kill", "1") == nil {
		return
	}
	pids, _ := os.ReadFile(filepath.Join(c.dir.Name(), "cgroup.procs"))
	for _, pid := range bytes.Fields(pids) {
		if n, err := strconv.Atoi(string(pid)); err == nil && n > 0 {
			_ = syscall.Kill(n, syscall.SIGKILL) // it may have ended
		}
	}
}
