package redis

import (
	"context"
	"crypto/sha256"
	"embed"
	"encoding/base64"
	"fmt"
	"iter"
	"strconv"

	"github.com/redis/rueidis"
)

//go:embed lua/*.lua
var luaFiles embed.FS

// script joins files of the folder lua, in the order of their names in the call, into a script. The
// keys of every script must be in a single hash slot.
func script(names ...string) *rueidis.Lua {
	var all []byte
	for _, name := range names {
		text, err := luaFiles.ReadFile("lua/" + name + ".lua")
		if err != nil {
			panic(err) // the file is embedded
		}
		all = append(all, text...)
	}
	return rueidis.NewLuaScript(string(all))
}

var scriptGet = script("get")

// eval runs a script that transfers size bytes.
func (s *Store) eval(ctx context.Context, op string, lua *rueidis.Lua, size int, keys []string,
	args ...string) (rueidis.RedisMessage, error) {
	return s.do(ctx, op, size, func(ctx context.Context) rueidis.RedisResult {
		return lua.Exec(ctx, s.client, keys, args)
	})
}

// maxReads limits the calls of a script whose reply grows with each call.
const maxReads = 8

// read runs a script. The last argument of the script is the maximum size of the reply in bytes. If
// the reply is larger, the script returns the size, and read runs the script again with more time.
func (s *Store) read(ctx context.Context, op string, lua *rueidis.Lua, keys []string,
	args ...string) (rueidis.RedisMessage, error) {
	size, limit := 0, smallReply
	for range maxReads {
		reply, err := s.eval(ctx, op, lua, size, keys, append(args[:len(args):len(args)], strconv.Itoa(limit))...)
		if err != nil || !reply.IsInt64() {
			return reply, err
		}
		n, _ := reply.AsInt64()
		size = int(n)
		limit = size + size/4
	}
	return rueidis.RedisMessage{}, fmt.Errorf("redis: %s: %s: the value grows faster than it is read", s.server, op)
}

// value returns the value of a key, or nil.
func (s *Store) value(ctx context.Context, op, key string) ([]byte, error) {
	reply, err := s.read(ctx, op, scriptGet, []string{key})
	if err != nil || reply.IsNil() {
		return nil, err
	}
	return bytesOf(reply)
}

// bytesOf returns a copy of a string. The copy is never nil.
func bytesOf(reply rueidis.RedisMessage) ([]byte, error) {
	text, err := reply.ToString()
	return append([]byte{}, text...), err
}

// each returns the values that read returns, or its error.
func each[T any](read func() ([]T, error)) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		values, err := read()
		if err != nil {
			var none T
			yield(none, err)
			return
		}
		for _, value := range values {
			if !yield(value, nil) {
				return
			}
		}
	}
}

// digest returns a short name for texts that may be long, secret or binary.
func digest(parts ...string) string {
	h := sha256.New()
	for _, part := range parts {
		fmt.Fprintf(h, "%d:%s", len(part), part)
	}
	return base64.RawURLEncoding.EncodeToString(h.Sum(nil)[:24])
}
