package seal

// UseUp makes the present subkey of the first key reach its limit.
func UseUp(r *KeyRing) { (*r.keys.Load())[0].current.Load().seals.Store(maxSeals) }
