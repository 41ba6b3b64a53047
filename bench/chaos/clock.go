package main

import (
	_ "embed"
	"encoding/binary"
	"errors"
	"math/rand/v2"
	"os"
	"time"
)

// A clock is the clock of a Redis or PostgreSQL whose process preloads a library. A Go program reads its
// clock without a library, so the clocks of the processes under test are not stepped.
type clock struct{ library, file string }

//go:embed testdata/clock.c
var clockSource []byte

// newClock compiles the library with cc. The names of its files begin with path.
func newClock(path string) (*clock, error) {
	c := &clock{path + ".so", path}
	source := path + ".c"
	return c, errors.Join(os.WriteFile(source, clockSource, 0o600), c.set(0),
		command("cc", "-shared", "-fPIC", "-O1", "-o", c.library, source))
}

// environment returns the variables of a program that uses the clock.
func (c *clock) environment() []string {
	if c == nil {
		return os.Environ()
	}
	return append(os.Environ(), "LD_PRELOAD="+c.library, "CHAOS_CLOCK="+c.file)
}

// set sets the difference to the clock of the machine. Programs have mapped the file into memory.
func (c *clock) set(d time.Duration) error {
	file, err := os.OpenFile(c.file, os.O_WRONLY|os.O_CREATE, 0o644) //nolint:gosec // another user reads the file
	if err != nil {
		return err
	}
	_, err = file.Write(binary.NativeEndian.AppendUint64(nil, uint64(d/time.Second)))
	return errors.Join(err, file.Close())
}

// step steps the clock forward or back, and after a while the other way.
func (c *clock) step(r *rand.Rand, d time.Duration) error {
	if r.IntN(2) == 0 {
		d = -d
	}
	err := c.set(d)
	time.Sleep(within(r, maxRedisStop))
	return errors.Join(err, c.set(0))
}

// Steps of the clocks. Redis expires keys by its clock, so a larger step ends the sessions of this test.
const (
	redisStep    = 5 * time.Second
	postgresStep = time.Hour
)

var (
	redisClockFaults = []faultKind{
		{"clock of Redis stepped by 5 s, and back", "clock", (*nemesis).stepRedis},
	}
	postgresClockFaults = []faultKind{
		{"clock of PostgreSQL stepped by an hour, and back", "clock", (*nemesis).stepPostgres},
	}
)

func (n *nemesis) stepRedis(r *rand.Rand, _ time.Duration) error {
	return n.redis.nodes[0].clock.step(r, redisStep)
}

func (n *nemesis) stepPostgres(r *rand.Rand, _ time.Duration) error {
	return n.rows.clock.step(r, postgresStep)
}
