package main

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

const (
	masterName   = "main"          // for Sentinels
	failoverTime = 2 * time.Minute // until a replica has replaced its master: Sentinels pause on a busy machine
	clusterSlots = 5462            // of each of three masters; the last master has fewer
)

// startSentinels starts a Redis with a replica, and three Sentinels. The master refuses writes without a
// replica, so that it confirms none that the other node, once it is the master, lacks.
func (r *redisStore) startSentinels(dir string) error {
	r.faults = sentinelFaults
	args := []string{"--min-replicas-to-write", "1", "--repl-diskless-sync-delay", "0"}
	master, err := r.addNode(dir, args...)
	if err != nil {
		return err
	}
	replica, err := r.addNode(dir, args...)
	if err == nil {
		replica.master = master
		err = replica.restart(0, false)
	}
	if err != nil {
		return err
	}
	if err := waitUntil(failoverTime, r.isReplicated); err != nil {
		return err
	}
	for i := range 3 {
		n := &redisNode{dir: filepath.Join(dir, fmt.Sprint("sentinel", i)), address: freeAddress(r.host)}
		file := filepath.Join(n.dir, "conf")
		text := "sentinel monitor " + masterName + " " + r.host + " " + master.port() + " 2\n" +
			"sentinel down-after-milliseconds " + masterName + " 1000\n" +
			"sentinel failover-timeout " + masterName + " 5000\n"
		if err := errors.Join(os.MkdirAll(n.dir, 0o700), os.WriteFile(file, []byte(text), 0o600)); err != nil {
			return err
		}
		n.args = []string{file, "--sentinel"}
		r.others = append(r.others, n)
		if err := n.start(); err != nil {
			return err
		}
	}
	return waitUntil(failoverTime, r.isHealthy)
}

// isReplicated returns an error unless each master has a replica that is current.
func (r *redisStore) isReplicated() error {
	masters := 0
	for _, n := range r.nodes {
		switch err := n.has("INFO replication", "role:master", "state=online", "min_slaves_good_slaves:1"); {
		case err == nil:
			masters++
		case n.has("INFO replication", "role:slave", "master_link_status:up") != nil:
			return err
		}
	}
	if want := len(r.nodes) / 2; masters != want {
		return fmt.Errorf("%d masters with a replica, want %d", masters, want)
	}
	return nil
}

// isHealthy returns an error until the failovers are over and the next one can begin.
func (r *redisStore) isHealthy() error {
	if r.engine == engineSingle {
		return nil
	}
	if err := r.isReplicated(); err != nil {
		return err
	}
	for _, n := range r.others {
		text := "status=ok,address=" + r.master(nil).address + ",slaves=1,sentinels=3"
		if err := n.has("INFO sentinel", text); err != nil {
			return err
		}
	}
	if r.engine == engineCluster {
		for _, n := range r.nodes {
			if err := n.has("CLUSTER INFO", "cluster_state:ok", "cluster_slots_ok:16384"); err != nil {
				return err
			}
		}
	}
	return nil
}

// startCluster starts a Cluster of three masters with a replica each.
func (r *redisStore) startCluster(dir string) error {
	r.faults = clusterFaults
	for range 6 {
		_, bus, _ := strings.Cut(freeAddress(r.host), ":")
		if _, err := r.addNode(dir, "--cluster-enabled", "yes", "--cluster-port", bus, "--cluster-node-timeout", "2000",
			"--cluster-require-full-coverage", "no", "--cluster-replica-validity-factor", "0",
			"--repl-diskless-sync-delay", "0", "--min-replicas-to-write", "1"); err != nil {
			return err
		}
	}
	for i, n := range r.nodes {
		if from := i * clusterSlots; i < 3 {
			to := min(from+clusterSlots, 16384) - 1
			if _, err := n.do("CLUSTER", "ADDSLOTSRANGE", fmt.Sprint(from), fmt.Sprint(to)); err != nil {
				return err
			}
			if _, err := n.do("CLUSTER", "SET-CONFIG-EPOCH", fmt.Sprint(i+1)); err != nil {
				return err
			}
		}
		bus := n.args[slices.Index(n.args, "--cluster-port")+1]
		if _, err := r.nodes[0].do("CLUSTER", "MEET", r.host, n.port(), bus); err != nil {
			return err
		}
	}
	for i, n := range r.nodes[3:] {
		id, err := r.nodes[i].text("CLUSTER", "MYID")
		if err == nil {
			err = waitUntil(failoverTime, func() error { return n.has("CLUSTER NODES", id) })
		}
		if err == nil {
			err = waitUntil(failoverTime, func() error {
				_, err := n.do("CLUSTER", "REPLICATE", id)
				return err
			})
		}
		if err != nil {
			return err
		}
	}
	return waitUntil(failoverTime, r.isHealthy)
}

// master returns a master, at random for a Cluster.
func (r *redisStore) master(random *rand.Rand) *redisNode {
	start := 0
	if random != nil {
		start = random.IntN(len(r.nodes))
	}
	for i := range r.nodes {
		if n := r.nodes[(start+i)%len(r.nodes)]; n.isMaster() {
			return n
		}
	}
	return r.nodes[0]
}

func (r *redisStore) replica(random *rand.Rand) *redisNode {
	start := random.IntN(len(r.nodes))
	for i := range r.nodes {
		if n := r.nodes[(start+i)%len(r.nodes)]; !n.isMaster() {
			return n
		}
	}
	return r.nodes[0]
}

// Faults of a store with replicas. While a replica replaces its master, confirmed writes may be lost.
var (
	masterKilled  = faultKind{"Redis master killed: failover", "redis", (*nemesis).killMaster}
	masterStopped = faultKind{"SIGSTOP of a Redis master: failover", "redis", (*nemesis).stopMaster}
	failoverAsked = faultKind{"failover on request", "redis", (*nemesis).askFailover}
	replicaKilled = faultKind{"Redis replica killed and restarted", "redis", (*nemesis).killReplica}

	sentinelFaults = append([]faultKind{masterKilled, masterStopped, failoverAsked, replicaKilled,
		{"two Sentinels killed and restarted", "redis", (*nemesis).killSentinels}}, processFaults...)
	clusterFaults = append([]faultKind{masterKilled, masterStopped, failoverAsked, replicaKilled}, processFaults...)
)

// partner returns the other one of two nodes that replicate each other.
func (r *redisStore) partner(n *redisNode) *redisNode {
	half := len(r.nodes) / 2
	return r.nodes[(slices.Index(r.nodes, n)+half)%len(r.nodes)]
}

// replaced waits until its partner is the master in place of a node, which does not run.
func (r *redisStore) replaced(old *redisNode) error {
	other := r.partner(old)
	return waitUntil(failoverTime, func() error {
		if !other.isMaster() {
			return fmt.Errorf("no node has replaced the master %s", old.address)
		}
		return nil
	})
}

// startReplica starts a node that was killed. A Cluster remembers whom it replicates.
func (r *redisStore) startReplica(n *redisNode) error {
	if r.engine == engineSentinel {
		n.master, r.partner(n).master = r.partner(n), nil
	}
	return n.start()
}

func (n *nemesis) killMaster(r *rand.Rand, _ time.Duration) error {
	defer n.history.risk()()
	old := n.redis.master(r)
	old.kill()
	return errors.Join(n.redis.replaced(old), n.redis.startReplica(old), waitUntil(failoverTime, n.redis.isHealthy))
}

func (n *nemesis) stopMaster(r *rand.Rand, _ time.Duration) error {
	defer n.history.risk()()
	old := n.redis.master(r)
	err := old.pause(func() error { return n.redis.replaced(old) })
	return errors.Join(err, waitUntil(failoverTime, n.redis.isHealthy))
}

func (n *nemesis) askFailover(r *rand.Rand, _ time.Duration) error {
	defer n.history.risk()()
	var err error
	if n.redis.engine == engineSentinel {
		_, err = n.redis.others[r.IntN(3)].do("SENTINEL", "FAILOVER", masterName)
	} else {
		_, err = n.redis.replica(r).do("CLUSTER", "FAILOVER")
	}
	time.Sleep(time.Second) // until it begins
	return errors.Join(err, waitUntil(failoverTime, n.redis.isHealthy))
}

func (n *nemesis) killReplica(r *rand.Rand, d time.Duration) error {
	replica := n.redis.replica(r)
	replica.kill()
	time.Sleep(d)
	return errors.Join(n.redis.startReplica(replica), waitUntil(failoverTime, n.redis.isHealthy))
}

func (n *nemesis) killSentinels(r *rand.Rand, d time.Duration) error {
	first := r.IntN(3)
	two := []*redisNode{n.redis.others[first], n.redis.others[(first+1)%3]}
	for _, s := range two {
		s.kill()
	}
	time.Sleep(d)
	var err error
	for _, s := range two {
		err = errors.Join(err, s.start())
	}
	return errors.Join(err, waitUntil(failoverTime, n.redis.isHealthy))
}
