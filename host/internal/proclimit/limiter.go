// Package proclimit limits the resources of the processes of a server.
//
// On Linux it starts the processes in a cgroup (version 2) if this process may create a cgroup with
// the controllers. Otherwise a shell sets resource limits before it becomes the server, and each
// limit applies to each process. A limit that neither can enforce is an error.
//
// The limits contain servers that go wrong. They must not be used against attackers: a server runs
// as the same user, and can leave its cgroup.
package proclimit

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
)

// A Limiter starts the processes of a server with limits. Callers must call Close.
type Limiter struct {
	cgroup  *cgroup  // nil without a cgroup
	ulimits []string // pairs of an option of ulimit and its value
	missing []string
}

// limitScript sets the resource limits that are pairs of arguments before "--", and becomes the
// command after it.
const limitScript = `while [ "$1" != -- ]; do ulimit "$1" "$2" || exit 125; shift 2; done; shift; exec "$@"`

// New returns a Limiter. The error names the limits that this system cannot enforce, unless
// BestEffort is set.
func New(l Limits) (*Limiter, error) {
	if l.Memory < 0 || l.Processes < 0 || l.OpenFiles < 0 || !(l.CPU >= 0 && l.CPU < maxProcessors) {
		return nil, fmt.Errorf("invalid limits %+v: must not be negative, and CPU less than %d", l, maxProcessors)
	}
	r := &Limiter{}
	var left Limits
	r.cgroup, left = enter(l)
	if left.Memory > 0 && (!dataLimited || !r.ulimit("-d", resourceData, max(left.Memory>>10, 1), 1<<10)) {
		r.missing = append(r.missing, "memory")
	}
	if left.OpenFiles > 0 && !r.ulimit("-n", resourceFiles, int64(left.OpenFiles), 1) {
		r.missing = append(r.missing, "openFiles")
	}
	if left.Processes > 0 {
		r.missing = append(r.missing, "processes")
	}
	if left.CPU > 0 {
		r.missing = append(r.missing, "cpu")
	}
	if len(r.missing) > 0 && !l.BestEffort {
		_ = r.Close() // it is empty
		return nil, fmt.Errorf("%w: %s: they need Linux with cgroups of version 2 that this process may create "+
			"(for systemd: Delegate=yes and DelegateSubgroup=main)", ErrUnsupported, strings.Join(r.missing, ", "))
	}
	return r, nil
}

// ErrUnsupported is the error of limits that the system cannot enforce.
var ErrUnsupported = errors.New("this system cannot enforce the limits")

// maxProcessors is more than any machine contains.
const maxProcessors = 1 << 20

// Missing returns the names of the limits that are not enforced.
func (r *Limiter) Missing() []string { return r.missing }

// ulimit adds a resource limit in units of ulimit, unless a lower limit is in force.
func (r *Limiter) ulimit(option string, resource int, value, unit int64) bool {
	if _, err := os.Stat(shell); err != nil {
		return false
	}
	current, ok := hardLimit(resource)
	if ok && uint64(value)*uint64(unit) < current {
		r.ulimits = append(r.ulimits, option, strconv.FormatInt(value, 10))
	}
	return ok
}

// Prepare changes a command, whose process is not started yet, so that it starts with the limits. A
// command that was not found is left alone.
func (r *Limiter) Prepare(cmd *exec.Cmd) error {
	if cmd.Err != nil {
		return nil // Start returns it
	}
	if len(r.ulimits) > 0 {
		script := append([]string{"sh", "-c", limitScript, "mcp-limits"}, r.ulimits...)
		cmd.Args = append(append(script, "--", cmd.Path), cmd.Args[1:]...)
		cmd.Path = shell
	}
	if r.cgroup != nil {
		r.cgroup.prepare(cmd)
	}
	return nil
}

// Close kills the processes that still run in the cgroup, including processes that have left the
// process group of the server, and removes the cgroup. It returns within 3 seconds. It may be
// called repeatedly.
func (r *Limiter) Close() error {
	if r.cgroup == nil {
		return nil
	}
	return r.cgroup.close()
}
