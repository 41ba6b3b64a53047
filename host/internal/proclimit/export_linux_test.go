package proclimit

import "os"

var (
	CgroupMount = cgroupMount
	Enable      = enable
	RemoveOld   = removeOld
)

// InCgroup returns a Limiter with a cgroup in a directory.
func InCgroup(parent string, l Limits, controllers []string) (*Limiter, error) {
	c, err := newCgroup(parent, l, controllers)
	return &Limiter{cgroup: c}, err
}

// Dir returns the directory of the cgroup.
func (r *Limiter) Dir() string { return r.cgroup.dir.Name() }

// Write writes limits to the files of a directory.
func Write(path string, l Limits) error {
	dir, err := os.Open(path)
	if err != nil {
		return err
	}
	defer dir.Close()
	return (&cgroup{dir: dir}).limit(l, controllers(l))
}
