package jsonscan

import (
	"bytes"
	"sort"
)

// fewKeys is the number of keys up to which an object's keys are compared in pairs, without an
// allocation. More keys are sorted.
const fewKeys = 16

// Valid validates data, which must be a single value with only white space around it. The error is
// a [*SyntaxError].
func Valid(data []byte, lim Limits) error {
	return Visit(data, lim, nil)
}

// Visit is [Valid] that also calls each for every member of the outermost value, if that is an
// object, with the decoded key and the raw value. They alias data unless the key contains escapes.
// Members are visited during the scan, also in text that is rejected later, and both of two
// duplicates. The value is nil for a member whose value is malformed.
func Visit(data []byte, lim Limits, each func(key, value []byte)) error {
	s := scanner{data: data, lim: lim.orDefault()}
	if end, ok := s.value(s.space(0), 0, each); ok {
		if end = s.space(end); end < len(data) {
			s.fail(end, TrailingData)
		}
	}
	return s.err()
}

// A scanner scans data once. Its methods take the offset of a token and return the offset behind
// it; ok is false for malformed text, which ends the scan.
type scanner struct {
	data    []byte
	lim     Limits
	fault   SyntaxError
	decoded [][]byte // keys with escapes, of the enclosing objects
}

func (s *scanner) err() error {
	if s.fault.Reason == 0 {
		return nil
	}
	fault := s.fault
	return &fault
}

// fail ends the scan. It overrides an earlier note: malformed text is reported as such.
func (s *scanner) fail(at int, reason Reason) (int, bool) {
	s.fault = SyntaxError{Offset: at, Reason: reason}
	return at, false
}

// note records an error and lets the scan continue.
func (s *scanner) note(at int, reason Reason) {
	if s.fault.Reason == 0 {
		s.fault = SyntaxError{Offset: at, Reason: reason}
	}
}

func (s *scanner) space(at int) int { return skipSpace(s.data, at) }

// token returns the offset of the next token, after white space, and its first byte; 0 at the end
// of the text.
func (s *scanner) token(at int) (int, byte) {
	for ; at < len(s.data); at++ {
		if c := s.data[at]; !isSpace(c) {
			return at, c
		}
	}
	return at, 0
}

func isSpace(c byte) bool {
	return c <= ' ' && (c == ' ' || c == '\n' || c == '\t' || c == '\r') // the first comparison decides most cases
}

// peek returns the byte at an offset, or 0 behind the end, which starts no token.
func (s *scanner) peek(at int) byte {
	if at < len(s.data) {
		return s.data[at]
	}
	return 0
}

// value scans a value within depth containers.
func (s *scanner) value(at, depth int, each func(key, value []byte)) (end int, ok bool) {
	switch c := s.peek(at); c {
	case '"':
		end, _, ok = s.text(at)
		return end, ok
	case '{', '[':
		if depth == s.lim.Depth {
			return s.tooDeep(at)
		}
		if c == '{' {
			return s.object(at, depth+1, each)
		}
		return s.array(at, depth+1)
	case 't':
		return s.literal(at, "true")
	case 'f':
		return s.literal(at, "false")
	case 'n':
		return s.literal(at, "null")
	case '-', '0', '1', '2', '3', '4', '5', '6', '7', '8', '9':
		return s.number(at)
	}
	if at == 0 && bytes.HasPrefix(s.data, []byte("\uFEFF")) {
		return s.fail(at, ByteOrderMark)
	}
	return s.fail(at, Malformed)
}

// tooDeep skips a container by its brackets, without recursion.
func (s *scanner) tooDeep(at int) (int, bool) {
	s.note(at, TooDeep)
	end := skip(s.data, at)
	if end < 0 {
		return s.fail(len(s.data), Malformed)
	}
	return end, true
}

func (s *scanner) object(at, depth int, each func(key, value []byte)) (int, bool) {
	at, c := s.token(at + 1)
	if c == '}' {
		return at + 1, true
	}
	var keys keys
	keys.decoded = len(s.decoded)
	for c == '"' {
		end, escaped, ok := s.text(at)
		if !ok {
			return end, false
		}
		key := span{at + 1, end - at - len(`""`)}
		if escaped {
			key = s.decode(&keys, key)
		}
		s.addKey(&keys, key, at)

		if at, c = s.token(end); c != ':' {
			return s.fail(at, Malformed)
		}
		start := s.space(at + 1)
		end, ok = s.value(start, depth, nil)
		if each != nil {
			var value []byte
			if ok {
				value = s.data[start:end:end]
			}
			each(s.key(key), value)
		}
		if !ok {
			return end, false
		}

		switch at, c = s.token(end); c {
		case ',':
			at, c = s.token(at + 1)
		case '}':
			s.checkKeys(&keys, at)
			s.decoded = s.decoded[:keys.decoded]
			return at + 1, true
		default:
			return s.fail(at, Malformed)
		}
	}
	return s.fail(at, Malformed)
}

// A span is the position and size of a key: in the text, or in scanner.decoded if at is negative.
type span struct{ at, size int }

// decode returns the span of a key with escapes. If the object contains too many keys, the last
// entry is reused.
func (s *scanner) decode(of *keys, k span) span {
	key := unescape(s.data[k.at : k.at+k.size])
	s.decoded = append(s.decoded[:min(len(s.decoded), of.decoded+s.lim.Keys)], key)
	return span{-len(s.decoded), len(key)}
}

// key returns the decoded key of a span.
func (s *scanner) key(k span) []byte {
	if k.at < 0 {
		return s.decoded[-k.at-1]
	}
	return s.data[k.at : k.at+k.size]
}

// keys are the keys of an object. Spans are small and contain no pointers, since every object has
// this on the stack.
type keys struct {
	n       int
	decoded int // the number of decoded keys of enclosing objects
	few     [fewKeys]span
	many    []span // all of them, if more than few
}

// addKey adds a key of an object. It compares the first few keys at once; checkKeys compares the
// others.
func (s *scanner) addKey(k *keys, key span, at int) {
	switch {
	case k.n == s.lim.Keys:
		s.note(at, TooManyKeys)
		return
	case k.n < fewKeys:
		for _, other := range k.few[:k.n] {
			if other.size == key.size && string(s.key(other)) == string(s.key(key)) {
				s.note(at, DuplicateKey)
			}
		}
		k.few[k.n] = key
	case k.n == fewKeys:
		k.many = append(k.many, k.few[:]...)
		fallthrough
	default:
		k.many = append(k.many, key)
	}
	k.n++
}

func (s *scanner) checkKeys(k *keys, at int) {
	if k.n <= fewKeys {
		return
	}
	// With sorting, an attacker cannot choose a worst case, unlike hashing, and needs little
	// memory. An instance of slices.SortFunc would be 6 KiB of every program.
	sort.Sort(&byKey{scanner{data: s.data, decoded: s.decoded}, k.many})
	for i := 1; i < len(k.many); i++ {
		if string(s.key(k.many[i-1])) == string(s.key(k.many[i])) {
			s.note(at, DuplicateKey)
			return
		}
	}
}

// byKey sorts spans by the size of their keys, then by the keys. Its scanner is a copy, so that the
// one of other objects stays on the stack.
type byKey struct {
	scanner
	spans []span
}

func (b *byKey) Len() int      { return len(b.spans) }
func (b *byKey) Swap(i, j int) { b.spans[i], b.spans[j] = b.spans[j], b.spans[i] }
func (b *byKey) Less(i, j int) bool {
	x, y := b.spans[i], b.spans[j]
	return x.size < y.size || x.size == y.size && string(b.key(x)) < string(b.key(y))
}

func (s *scanner) array(at, depth int) (int, bool) {
	at = s.space(at + 1)
	if s.peek(at) == ']' {
		return at + 1, true
	}
	for {
		end, ok := s.value(at, depth, nil)
		if !ok {
			return end, false
		}
		at = s.space(end)
		switch s.peek(at) {
		case ',':
			at = s.space(at + 1)
		case ']':
			return at + 1, true
		default:
			return s.fail(at, Malformed)
		}
	}
}

func (s *scanner) literal(at int, word string) (int, bool) {
	end := at + len(word)
	if end > len(s.data) || string(s.data[at:end]) != word {
		return s.fail(at, Malformed)
	}
	return end, true
}

func (s *scanner) number(at int) (int, bool) {
	if s.data[at] == '-' {
		at++
	}
	var ok bool
	if s.peek(at) == '0' {
		at++
	} else if at, ok = s.digits(at); !ok {
		return at, false
	}
	if s.peek(at) == '.' {
		if at, ok = s.digits(at + 1); !ok {
			return at, false
		}
	}
	if c := s.peek(at); c == 'e' || c == 'E' {
		at++
		if c := s.peek(at); c == '+' || c == '-' {
			at++
		}
		return s.digits(at)
	}
	return at, true
}

// digits scans at least one digit.
func (s *scanner) digits(at int) (int, bool) {
	start := at
	for at < len(s.data) && '0' <= s.data[at] && s.data[at] <= '9' {
		at++
	}
	if at == start {
		return s.fail(at, Malformed)
	}
	return at, true
}
