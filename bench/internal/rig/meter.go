package rig

import (
	"bufio"
	"encoding/json"
	"fmt"
	"net"
	"runtime"
	"time"
)

// A Reading is what a server process has used since it started, and what it
// holds now.
type Reading struct {
	// CPU is user plus system time; zero where the system does not tell.
	CPU time.Duration `json:"cpu"`
	// Mallocs and Bytes count heap objects allocated and their size, freed
	// ones included.
	Mallocs uint64 `json:"mallocs"`
	Bytes   uint64 `json:"bytes"`
	// Heap and Stack are bytes in use; right after a collection, when the
	// reading was asked for with Collect.
	Heap  uint64 `json:"heap"`
	Stack uint64 `json:"stack"`
	// Goroutines is their number now.
	Goroutines int `json:"goroutines"`
}

// The commands of the meter: one word a line, answered with one line.
const (
	commandRead    = "read"
	commandCollect = "collect"
)

// serveMeter answers on l until the process ends.
func serveMeter(l net.Listener) {
	for {
		c, err := l.Accept()
		if err != nil {
			return
		}
		go answerMeter(c)
	}
}

func answerMeter(c net.Conn) {
	defer c.Close()
	out := json.NewEncoder(c)
	for in := bufio.NewScanner(c); in.Scan(); {
		if in.Text() == commandCollect {
			// Twice: the first collection may leave what finalizers,
			// cleanups and pools still hold.
			runtime.GC()
			runtime.GC()
		}
		if out.Encode(read()) != nil {
			return
		}
	}
}

func read() Reading {
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return Reading{
		CPU:        cpuTime(),
		Mallocs:    m.Mallocs,
		Bytes:      m.TotalAlloc,
		Heap:       m.HeapAlloc,
		Stack:      m.StackInuse,
		Goroutines: runtime.NumGoroutine(),
	}
}

// A Meter asks a server process for readings. One caller at a time.
type Meter struct {
	conn net.Conn
	in   *json.Decoder
}

// meterTimeout bounds one reading; a collection of a heap full of sessions is
// the slowest one.
const meterTimeout = 30 * time.Second

// DialMeter connects to the meter at addr, as announced.
func DialMeter(addr string) (*Meter, error) {
	conn, err := net.DialTimeout("tcp", addr, meterTimeout)
	if err != nil {
		return nil, fmt.Errorf("dial meter: %w", err)
	}
	return &Meter{conn: conn, in: json.NewDecoder(conn)}, nil
}

// Read returns what the process has used so far.
func (m *Meter) Read() (Reading, error) { return m.ask(commandRead) }

// Collect has the process collect its garbage, then reads.
func (m *Meter) Collect() (Reading, error) { return m.ask(commandCollect) }

// Close ends the connection; the process runs on.
func (m *Meter) Close() error { return m.conn.Close() }

func (m *Meter) ask(command string) (r Reading, err error) {
	if err := m.conn.SetDeadline(time.Now().Add(meterTimeout)); err != nil {
		return r, fmt.Errorf("read meter: %w", err)
	}
	if _, err := fmt.Fprintln(m.conn, command); err != nil {
		return r, fmt.Errorf("read meter: %w", err)
	}
	if err := m.in.Decode(&r); err != nil {
		return r, fmt.Errorf("read meter: %w", err)
	}
	return r, nil
}
