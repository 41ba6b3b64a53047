package main

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"strings"
	"time"
)

// A network gives each process of the server a network namespace of its own, with a link to the proxy of
// the clients and another link to the store. A nil network is the loopback interface.
type network struct {
	prefix string // of all addresses, such as "10.101."
	name   string // before the names of namespaces and links
	places int
}

// Links of a process.
const (
	frontLink = "f" // to the clients
	backLink  = "b" // to the store
)

// newNetwork creates the namespaces and links of a number of processes. It needs Linux, root, and the
// commands ip and tc. Each run has addresses of its own, so that two can run at a time.
func newNetwork(places int) (*network, error) {
	pid := os.Getpid() % 100
	n := &network{prefix: fmt.Sprintf("10.%d.", 100+pid), name: fmt.Sprintf("chaos%d", pid), places: places}
	if err := command("ip", "address", "add", n.host()+"/32", "dev", "lo"); err != nil {
		return nil, err
	}
	for place := range places {
		if err := n.connect(place); err != nil {
			n.close()
			return nil, err
		}
	}
	return n, nil
}

func (n *network) connect(place int) error {
	space := n.namespace(place)
	err := command("ip", "netns", "add", space)
	for i, kind := range []string{frontLink, backLink} {
		near, far := n.link(place, kind), n.link(place, kind)+"x"
		err = errors.Join(err,
			command("ip", "link", "add", near, "type", "veth", "peer", "name", far, "netns", space),
			command("ip", "address", "add", n.address(place, 4*i+1)+"/30", "dev", near),
			command("ip", "link", "set", near, "up"),
			command("ip", "-n", space, "address", "add", n.address(place, 4*i+2)+"/30", "dev", far),
			command("ip", "-n", space, "link", "set", far, "up"))
	}
	return errors.Join(err, command("ip", "-n", space, "link", "set", "lo", "up"),
		command("ip", "-n", space, "route", "add", n.host()+"/32", "via", n.gateway(place)))
}

// command runs a program and returns its output as an error if it fails.
func command(name string, args ...string) error {
	if out, err := exec.Command(name, args...).CombinedOutput(); err != nil {
		return fmt.Errorf("%s %s: %w: %s", name, strings.Join(args, " "), err, out)
	}
	return nil
}

func (n *network) namespace(place int) string { return fmt.Sprint(n.name, "n", place) }

func (n *network) link(place int, kind string) string { return fmt.Sprint(n.name, kind, place) }

func (n *network) address(place, last int) string {
	return fmt.Sprintf("%s%d.%d", n.prefix, place, last)
}

// host returns the address at which the nodes of the store listen.
func (n *network) host() string {
	if n == nil {
		return "127.0.0.1"
	}
	return n.prefix + "255.1"
}

// gateway returns the address of this end of the link between a process and the store.
func (n *network) gateway(place int) string {
	if n == nil {
		return "127.0.0.1"
	}
	return n.address(place, 5)
}

// own returns the address at which a process listens, and the words before the command that starts it.
func (n *network) own(place int) (address string, before []string) {
	if n == nil {
		return "127.0.0.1", nil
	}
	return n.address(place, 2), []string{"ip", "netns", "exec", n.namespace(place)}
}

func (n *network) close() {
	if n == nil {
		return
	}
	for place := range n.places {
		_ = command("ip", "netns", "delete", n.namespace(place)) // also its links
	}
	_ = command("ip", "address", "delete", n.host()+"/32", "dev", "lo")
}

// Disciplines of the packets on a link. The first one drops all.
var (
	dropAll = []string{"pfifo", "limit", "0"}
	slowed  = []string{"tbf", "rate", "2mbit", "burst", "8k", "latency", "300ms"}
)

// hurt applies a discipline to a link, in both directions or in one, until the function that it returns
// is called.
func (n *network) hurt(r *rand.Rand, place int, kind string, discipline []string) (heal func() error, err error) {
	near, far := []string{"dev", n.link(place, kind)}, []string{"dev", n.link(place, kind) + "x"}
	ends := [][]string{append([]string{"qdisc"}, near...), append([]string{"-n", n.namespace(place), "qdisc"}, far...)}
	if i := r.IntN(4); i < len(ends) {
		ends = ends[i : i+1]
	}
	tc := func(end []string, verb string, words ...string) error {
		at := len(end) - 2 // the verb follows the word qdisc
		args := append(append(append([]string{}, end[:at]...), verb), end[at:]...)
		return command("tc", append(append(args, "root"), words...)...)
	}
	for _, end := range ends {
		err = errors.Join(err, tc(end, "replace", discipline...))
	}
	return func() (err error) {
		for _, end := range ends {
			err = errors.Join(err, tc(end, "delete"))
		}
		return err
	}, err
}

// networkFaults are the faults of links between namespaces: nobody learns that packets are dropped.
var networkFaults = []faultKind{
	{"packets between a process and the store dropped", "", (*nemesis).dropBack},
	{"packets between the clients and a process dropped", "process", (*nemesis).dropFront},
	{"2 Mbit/s between a process and the store", "", (*nemesis).slowBack},
}

func (n *nemesis) dropBack(r *rand.Rand, _ time.Duration) error {
	return n.hurtNetwork(r, r.IntN(len(n.current())), backLink, dropAll)
}

func (n *nemesis) slowBack(r *rand.Rand, _ time.Duration) error {
	return n.hurtNetwork(r, r.IntN(len(n.current())), backLink, slowed)
}

// dropFront separates a process from the clients. In half of the cases the proxy learns that after a
// second, as from a check of its health.
func (n *nemesis) dropFront(r *rand.Rand, _ time.Duration) error {
	place := r.IntN(len(n.current()))
	if r.IntN(2) == 0 {
		timer := time.AfterFunc(time.Second, func() { n.aim(place) })
		defer n.aim()
		defer timer.Stop()
	}
	return n.hurtNetwork(r, place, frontLink, dropAll)
}

func (n *nemesis) hurtNetwork(r *rand.Rand, place int, kind string, discipline []string) error {
	heal, err := n.network.hurt(r, place, kind, discipline)
	if err == nil {
		time.Sleep(within(r, maxRedisStop))
	}
	return errors.Join(err, heal())
}
