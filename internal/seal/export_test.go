package seal

// ExhaustSubkey makes the current subkey of the first key reach its limit.
func ExhaustSubkey(r *KeyRing) { (*r.keys.Load())[0].current.Load().seals.Store(maxSeals) }
