package rig

import (
	"bufio"
	"encoding/json"
	"fmt"
	"net"
	"runtime"
	"time"
)

// A Reading is the resource usage of a server process since its start, and its
// current memory.
type Reading struct {
	// CPU is user plus system time; zero where it is unknown.
	CPU time.Duration `json:"cpu"`
	// Mallocs and Bytes count heap objects allocated and their size, freed
	// ones included.
	Mallocs uint64 `json:"mallocs"`
	Bytes   uint64 `json:"bytes"`
	// Heap and Stack are bytes in use. In a reading of Collect they are those
	// right after a garbage collection.
	Heap  uint64 `json:"heap"`
	Stack uint64 `json:"stack"`
	// Goroutines is the current number of goroutines.
	Goroutines int `json:"goroutines"`
}

// The commands of the meter, one word per line. The response is one line.
const (
	commandRead    = "read"
	commandCollect = "collect"
)

// serveMeter accepts connections on l until the process exits.
func serveMeter(l net.Listener) {
	for {
		c, err := l.Accept()
		if err != nil {
			return
		}
		go serveReadings(c)
	}
}

func serveReadings(c net.Conn) {
	defer c.Close()
	out := json.NewEncoder(c)
	for in := bufio.NewScanner(c); in.Scan(); {
		if in.Text() == commandCollect {
			// Collect twice: finalizers, cleanups and pools can keep memory
			// over the first collection.
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
		CPU:        CPUTime(),
		Mallocs:    m.Mallocs,
		Bytes:      m.TotalAlloc,
		Heap:       m.HeapAlloc,
		Stack:      m.StackInuse,
		Goroutines: runtime.NumGoroutine(),
	}
}

// A Meter requests readings from a server process. It is not safe for
// concurrent use.
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

// Read returns the resource usage of the process.
func (m *Meter) Read() (Reading, error) { return m.request(commandRead) }

// Collect makes the process run a garbage collection, then reads.
func (m *Meter) Collect() (Reading, error) { return m.request(commandCollect) }

// Close closes the connection. The process keeps running.
func (m *Meter) Close() error { return m.conn.Close() }

func (m *Meter) request(command string) (r Reading, err error) {
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
