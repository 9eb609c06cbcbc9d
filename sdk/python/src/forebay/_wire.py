# Generated from internal/wire/forebay.proto by make generate. Not to be edited.
import base64

from google.protobuf import descriptor_pool, message_factory

_pool = descriptor_pool.DescriptorPool()
_pool.AddSerializedFile(
    base64.b64decode(
        "ChtpbnRlcm5hbC93aXJlL2ZvcmViYXkucHJvdG8SCmZvcmViYXkudjEiBwoFRW1wdHki7wIKBUhl"
        "bGxvEh8KC21pbl92ZXJzaW9uGAEgASgNUgptaW5WZXJzaW9uEh8KC21heF92ZXJzaW9uGAIgASgN"
        "UgptYXhWZXJzaW9uEiIKDGNhcGFiaWxpdGllcxgDIAMoCVIMY2FwYWJpbGl0aWVzEhYKBmNsaWVu"
        "dBgEIAEoCVIGY2xpZW50EhAKA3BpZBgFIAEoDVIDcGlkEhAKA3VpZBgGIAEoDVIDdWlkEhAKA2dp"
        "ZBgHIAEoDVIDZ2lkEhQKBW5vbmNlGAggASgMUgVub25jZRISCgRub2RlGAkgASgJUgRub2RlEhoK"
        "CGluc3RhbmNlGAogASgEUghpbnN0YW5jZRIWCgZzeXN0ZW0YCyABKAhSBnN5c3RlbRIUCgV0b2tl"
        "bhgMIAEoDFIFdG9rZW4SHgoKY29ubmVjdGlvbhgNIAEoDFIKY29ubmVjdGlvbhIeCgpzdWNjZXNz"
        "aW9uGA4gASgEUgpzdWNjZXNzaW9uIjcKCUNoYWxsZW5nZRIUCgVub25jZRgBIAEoDFIFbm9uY2US"
        "FAoFcHJvb2YYAiABKAxSBXByb29mIh0KBVByb3ZlEhQKBXByb29mGAEgASgMUgVwcm9vZiIbCgVQ"
        "dWxzZRISCgRoZWxkGAEgASgNUgRoZWxkItsECgdXZWxjb21lEhgKB3ZlcnNpb24YASABKA1SB3Zl"
        "cnNpb24SIgoMY2FwYWJpbGl0aWVzGAIgAygJUgxjYXBhYmlsaXRpZXMSEgoEbm9kZRgDIAEoCVIE"
        "bm9kZRIaCghpbnN0YW5jZRgEIAEoBFIIaW5zdGFuY2USFAoFZXBvY2gYBSABKARSBWVwb2NoEhYK"
        "BnNlcnZlchgGIAEoCVIGc2VydmVyEh8KC21hcF9yZWdpb25zGAcgASgIUgptYXBSZWdpb25zEh8K"
        "C21heF9tZXNzYWdlGAggASgNUgptYXhNZXNzYWdlEhkKCG1heF9kYXRhGAkgASgNUgdtYXhEYXRh"
        "EiIKDW1heF9pbl9mbGlnaHQYCiABKA1SC21heEluRmxpZ2h0EikKEGlubGluZV90aHJlc2hvbGQY"
        "CyABKA1SD2lubGluZVRocmVzaG9sZBIQCgN1aWQYDCABKA1SA3VpZBIQCgNnaWQYDSABKA1SA2dp"
        "ZBIhCgxkYXRhX2FkZHJlc3MYDiABKAlSC2RhdGFBZGRyZXNzEhgKB3Nlc3Npb24YDyABKARSB3Nl"
        "c3Npb24SHwoLZGF0YV90aWNrZXQYECABKAxSCmRhdGFUaWNrZXQSHwoLb2ZpX2FkZHJlc3MYESAB"
        "KAlSCm9maUFkZHJlc3MSIQoMb2ZpX3Byb3ZpZGVyGBIgASgJUgtvZmlQcm92aWRlchIhCgxvZmlf"
        "ZW5kcG9pbnQYEyABKAlSC29maUVuZHBvaW50Eh8KC29maV9uZXR3b3JrGBQgASgJUgpvZmlOZXR3"
        "b3JrIp0BCgVFcnJvchISCgRraW5kGAEgASgNUgRraW5kEg4KAm9wGAIgASgJUgJvcBISCgRwYXRo"
        "GAMgASgJUgRwYXRoEhIKBG5vZGUYBCABKAlSBG5vZGUSFgoGcmVhc29uGAUgASgJUgZyZWFzb24S"
        "FgoGcmVtZWR5GAYgASgJUgZyZW1lZHkSGAoHb3V0Y29tZRgHIAEoDVIHb3V0Y29tZSI8CgZDYW5j"
        "ZWwSGAoHcmVxdWVzdBgBIAEoBFIHcmVxdWVzdBIYCgdvdmVyZHVlGAIgASgIUgdvdmVyZHVlIlUK"
        "DVN0YXR1c1JlcXVlc3QSFgoGYnVmZmVyGAEgASgJUgZidWZmZXISEgoEbm9kZRgCIAEoCVIEbm9k"
        "ZRIYCgdjbHVzdGVyGAMgASgIUgdjbHVzdGVyIjUKC1N0YXR1c1JlcGx5EhIKBGpzb24YASABKAxS"
        "BGpzb24SEgoEbm9kZRgCIAEoDFIEbm9kZSJTCglTdWJzY3JpYmUSFgoGYnVmZmVyGAEgASgJUgZi"
        "dWZmZXISFAoFa2luZHMYAiADKAlSBWtpbmRzEhgKB2NvbmZpcm0YAyABKAhSB2NvbmZpcm0iGwoF"
        "RXZlbnQSEgoEanNvbhgBIAEoDFIEanNvbiIgCgpCdWZmZXJOYW1lEhIKBG5hbWUYASABKAlSBG5h"
        "bWUiPQoNQnVmZmVyRGVzdHJveRISCgRuYW1lGAEgASgJUgRuYW1lEhgKB2Rpc2NhcmQYAiABKAhS"
        "B2Rpc2NhcmQirwIKDUJ1ZmZlclJlYnVpbHQSFgoGc2VydmVkGAEgASgIUgZzZXJ2ZWQSFAoFZmls"
        "ZXMYAiABKANSBWZpbGVzEiAKC2RpcmVjdG9yaWVzGAMgASgDUgtkaXJlY3RvcmllcxISCgRyZWFk"
        "GAkgASgDUgRyZWFkEhQKBWFzaWRlGAQgASgDUgVhc2lkZRISCgRrZXB0GAUgASgDUgRrZXB0EhkK"
        "CG9uX3N0b3JlGAYgASgDUgdvblN0b3JlEhIKBGxvc3QYByABKANSBGxvc3QSFAoFbGlua3MYCiAB"
        "KANSBWxpbmtzEhwKCWNvbW1pdHRlZBgLIAEoA1IJY29tbWl0dGVkEi0KBWZvdW5kGAggAygLMhcu"
        "Zm9yZWJheS52MS5SZWJ1aWx0RmlsZVIFZm91bmQiZwoLUmVidWlsdEZpbGUSEgoEcGF0aBgBIAEo"
        "CVIEcGF0aBIUCgVieXRlcxgCIAEoA1IFYnl0ZXMSFgoGYmVjYW1lGAMgASgJUgZiZWNhbWUSFgoG"
        "cmVhc29uGAQgASgJUgZyZWFzb24iNwoHQnVmZmVycxIsCgdidWZmZXJzGAEgAygLMhIuZm9yZWJh"
        "eS52MS5CdWZmZXJSB2J1ZmZlcnMi/QQKBkJ1ZmZlchISCgRuYW1lGAEgASgJUgRuYW1lEhAKA3Vp"
        "ZBgCIAEoDVIDdWlkEhAKA2dpZBgDIAEoDVIDZ2lkEhIKBG1vZGUYBCABKA1SBG1vZGUSGgoIY2Fw"
        "YWNpdHkYBSABKANSCGNhcGFjaXR5EhgKB2JhY2tpbmcYBiABKAlSB2JhY2tpbmcSHgoKZHVyYWJp"
        "bGl0eRgHIAEoCVIKZHVyYWJpbGl0eRIUCgVjb2RlYxgIIAEoCVIFY29kZWMSEgoEa2VlcBgJIAMo"
        "CVIEa2VlcBIfCgtmbHVzaF9saW1pdBgKIAEoA1IKZmx1c2hMaW1pdBIgCgxkaXJ0eV9hZ2VfbnMY"
        "CyABKANSCmRpcnR5QWdlTnMSFwoHbm9fd2FpdBgMIAEoCFIGbm9XYWl0EhgKB3JlY2VpcHQYDSAB"
        "KAhSB3JlY2VpcHQSEAoDam9iGA4gASgJUgNqb2ISHQoKY3JlYXRlZF9ucxgPIAEoA1IJY3JlYXRl"
        "ZE5zEhQKBXN0YXRlGBAgASgJUgVzdGF0ZRIhCgxrZWVwX2RlZmF1bHQYESABKAhSC2tlZXBEZWZh"
        "dWx0EhoKCHJlcGxpY2FzGBIgASgNUghyZXBsaWNhcxIqCgV0aWVycxgTIAMoCzIULmZvcmViYXku"
        "djEuVGllclJ1bGVSBXRpZXJzEhoKCGV4aXN0aW5nGBQgASgJUghleGlzdGluZxIUCgVmb3VuZBgV"
        "IAEoCVIFZm91bmQSHwoLZm91bmRfdG90YWwYFiABKA1SCmZvdW5kVG90YWwSFgoGc2hhcmVkGBcg"
        "ASgIUgZzaGFyZWQSFAoFZmx1c2gYGCADKAlSBWZsdXNoIjgKCFRpZXJSdWxlEhgKB3BhdHRlcm4Y"
        "ASABKAlSB3BhdHRlcm4SEgoEdGllchgCIAEoDVIEdGllciKvAwoFRW50cnkSEgoEbmFtZRgBIAEo"
        "CVIEbmFtZRISCgR0eXBlGAIgASgNUgR0eXBlEhIKBGZpbGUYAyABKARSBGZpbGUSHgoKZ2VuZXJh"
        "dGlvbhgEIAEoBFIKZ2VuZXJhdGlvbhISCgRzaXplGAUgASgDUgRzaXplEhoKCGNoZWNrc3VtGAYg"
        "ASgEUghjaGVja3N1bRISCgRvcGVuGAcgASgIUgRvcGVuEhgKB2hvbGRlcnMYCCADKAlSB2hvbGRl"
        "cnMSEgoEbW9kZRgJIAEoDVIEbW9kZRIQCgN1aWQYCiABKA1SA3VpZBIQCgNnaWQYCyABKA1SA2dp"
        "ZBIZCghtdGltZV9ucxgMIAEoA1IHbXRpbWVOcxIUCgVzdGF0ZRgNIAEoDVIFc3RhdGUSFgoGcmVh"
        "c29uGA4gASgJUgZyZWFzb24SEAoDZGlyGA8gASgEUgNkaXISLQoHZmx1c2hlZBgQIAEoCzITLmZv"
        "cmViYXkudjEuRmx1c2hlZFIHZmx1c2hlZBISCgRwYXRoGBEgASgJUgRwYXRoEhYKBnRhcmdldBgS"
        "IAEoDFIGdGFyZ2V0IjYKB0VudHJpZXMSKwoHZW50cmllcxgBIAMoCzIRLmZvcmViYXkudjEuRW50"
        "cnlSB2VudHJpZXMiwAEKB0ZsdXNoZWQSHgoKZ2VuZXJhdGlvbhgBIAEoBFIKZ2VuZXJhdGlvbhIS"
        "CgRldGFnGAIgASgJUgRldGFnEhIKBHNpemUYAyABKANSBHNpemUSGgoIY2hlY2tzdW0YBCABKARS"
        "CGNoZWNrc3VtEhQKBWNvZGVjGAUgASgJUgVjb2RlYxITCgVhdF9ucxgGIAEoA1IEYXROcxIOCgJi"
        "eRgHIAEoCVICYnkSFgoGbGF5b3V0GAggASgJUgZsYXlvdXQiOQoLUGF0aFJlcXVlc3QSFgoGYnVm"
        "ZmVyGAEgASgJUgZidWZmZXISEgoEcGF0aBgCIAEoCVIEcGF0aCJlCgtMaXN0UmVxdWVzdBIWCgZi"
        "dWZmZXIYASABKAlSBmJ1ZmZlchISCgRwYXRoGAIgASgJUgRwYXRoEhQKBWFmdGVyGAMgASgJUgVh"
        "ZnRlchIUCgVsaW1pdBgEIAEoDVIFbGltaXQiTAoJTGlzdFJlcGx5EisKB2VudHJpZXMYASADKAsy"
        "ES5mb3JlYmF5LnYxLkVudHJ5UgdlbnRyaWVzEhIKBG1vcmUYAiABKAhSBG1vcmUiYQoFTWtkaXIS"
        "FgoGYnVmZmVyGAEgASgJUgZidWZmZXISEgoEcGF0aBgCIAEoCVIEcGF0aBISCgRtb2RlGAMgASgN"
        "UgRtb2RlEhgKB3BhcmVudHMYBCABKAhSB3BhcmVudHMicwoFTWtub2QSFgoGYnVmZmVyGAEgASgJ"
        "UgZidWZmZXISEgoEcGF0aBgCIAEoCVIEcGF0aBISCgR0eXBlGAMgASgNUgR0eXBlEhYKBnRhcmdl"
        "dBgEIAEoDFIGdGFyZ2V0EhIKBG1vZGUYBSABKA1SBG1vZGUiYwoGUmVuYW1lEhYKBmJ1ZmZlchgB"
        "IAEoCVIGYnVmZmVyEhIKBGZyb20YAiABKAlSBGZyb20SDgoCdG8YAyABKAlSAnRvEh0KCm5vX3Jl"
        "cGxhY2UYBCABKAhSCW5vUmVwbGFjZSJ5Cg1FeGNoYW5nZU5hbWVzEhYKBmJ1ZmZlchgBIAEoCVIG"
        "YnVmZmVyEhIKBGZyb20YAiABKAlSBGZyb20SDgoCdG8YAyABKAlSAnRvEhcKB2Zyb21faWQYBCAB"
        "KARSBmZyb21JZBITCgV0b19pZBgFIAEoBFIEdG9JZCJmCgZSZW1vdmUSFgoGYnVmZmVyGAEgASgJ"
        "UgZidWZmZXISEgoEcGF0aBgCIAEoCVIEcGF0aBIcCglyZWN1cnNpdmUYAyABKAhSCXJlY3Vyc2l2"
        "ZRISCgRwYWdlGAQgASgDUgRwYWdlIlUKB1JlbW92ZWQSFAoFZmlsZXMYASABKANSBWZpbGVzEiAK"
        "C2RpcmVjdG9yaWVzGAIgASgDUgtkaXJlY3RvcmllcxISCgRtb3JlGAMgASgIUgRtb3JlIsIBCgdT"
        "ZXRBdHRyEhYKBmJ1ZmZlchgBIAEoCVIGYnVmZmVyEhIKBHBhdGgYAiABKAlSBHBhdGgSFwoEbW9k"
        "ZRgDIAEoDUgAUgRtb2RliAEBEhUKA3VpZBgEIAEoDUgBUgN1aWSIAQESFQoDZ2lkGAUgASgNSAJS"
        "A2dpZIgBARIeCghtdGltZV9ucxgGIAEoA0gDUgdtdGltZU5ziAEBQgcKBV9tb2RlQgYKBF91aWRC"
        "BgoEX2dpZEILCglfbXRpbWVfbnMicAoIU2V0WGF0dHISFgoGYnVmZmVyGAEgASgJUgZidWZmZXIS"
        "EgoEcGF0aBgCIAEoCVIEcGF0aBISCgRuYW1lGAMgASgMUgRuYW1lEhQKBXZhbHVlGAQgASgMUgV2"
        "YWx1ZRIOCgJvcBgFIAEoDVICb3AiUwoGWGF0dHJzEikKBnhhdHRycxgBIAMoCzIRLmZvcmViYXku"
        "djEuWGF0dHJSBnhhdHRycxIeCgp1bnJlYWRhYmxlGAIgASgIUgp1bnJlYWRhYmxlIkkKBVhhdHRy"
        "EhIKBG5hbWUYASABKAxSBG5hbWUSFAoFdmFsdWUYAiABKAxSBXZhbHVlEhYKBnN0b3JlZBgDIAEo"
        "CFIGc3RvcmVkItoDCgRPcGVuEhYKBmhhbmRsZRgBIAEoBFIGaGFuZGxlEhYKBmJ1ZmZlchgCIAEo"
        "CVIGYnVmZmVyEhIKBHBhdGgYAyABKAlSBHBhdGgSFAoFd3JpdGUYBCABKAhSBXdyaXRlEhYKBmNy"
        "ZWF0ZRgFIAEoCFIGY3JlYXRlEhwKCWV4Y2x1c2l2ZRgGIAEoCFIJZXhjbHVzaXZlEhoKCHRydW5j"
        "YXRlGAcgASgIUgh0cnVuY2F0ZRISCgRtb2RlGAggASgNUgRtb2RlEh8KC3Jlc3VtZV9maWxlGAkg"
        "ASgEUgpyZXN1bWVGaWxlEisKEXJlc3VtZV9nZW5lcmF0aW9uGAogASgEUhByZXN1bWVHZW5lcmF0"
        "aW9uEikKEHJlc3VtZV9jb21taXR0ZWQYCyABKAhSD3Jlc3VtZUNvbW1pdHRlZBISCgR3YW50GAwg"
        "ASgNUgR3YW50EhIKBGZpbGUYDSABKARSBGZpbGUSHgoKZ2VuZXJhdGlvbhgOIAEoBFIKZ2VuZXJh"
        "dGlvbhIjCg1yZXN1bWVfd3JpdGVyGA8gASgEUgxyZXN1bWVXcml0ZXISFgoGbGluZWFyGBUgASgI"
        "UgZsaW5lYXISFAoFZmVuY2UYFCABKAhSBWZlbmNlItkBCgZPcGVuZWQSJwoFZW50cnkYASABKAsy"
        "ES5mb3JlYmF5LnYxLkVudHJ5UgVlbnRyeRIeCgpnZW5lcmF0aW9uGAIgASgEUgpnZW5lcmF0aW9u"
        "Ei0KB2V4dGVudHMYAyABKAsyEy5mb3JlYmF5LnYxLkV4dGVudHNSB2V4dGVudHMSJQoOYWxyZWFk"
        "eV9jbG9zZWQYBCABKAhSDWFscmVhZHlDbG9zZWQSHAoJY29tbWl0dGVkGAUgASgEUgljb21taXR0"
        "ZWQSEgoEdGllchgGIAEoDVIEdGllciKUAQoMTGVhc2VSZXF1ZXN0EhYKBmJ1ZmZlchgBIAEoCVIG"
        "YnVmZmVyEhQKBWJ5dGVzGAIgASgDUgVieXRlcxISCgRmaXRzGAMgASgDUgRmaXRzEhIKBHRpZXIY"
        "BCABKA1SBHRpZXISFAoFZmlsZXMYBSABKA1SBWZpbGVzEhgKB2NvbW1pdHMYBiABKAhSB2NvbW1p"
        "dHMizQEKBUxlYXNlEg4KAmlkGAEgASgEUgJpZBIqCgZyZWdpb24YAiABKAsyEi5mb3JlYmF5LnYx"
        "LlJlZ2lvblIGcmVnaW9uEhYKBm9mZnNldBgDIAEoA1IGb2Zmc2V0EhYKBmxlbmd0aBgEIAEoA1IG"
        "bGVuZ3RoEh0KCmRhdGFfc3RhcnQYBSABKANSCWRhdGFTdGFydBIhCgxyZWNvcmRfZmxvb3IYBiAB"
        "KANSC3JlY29yZEZsb29yEhYKBnRpZXJlZBgHIAEoCFIGdGllcmVkIh0KC1JldHVybkxlYXNlEg4K"
        "AmlkGAEgASgEUgJpZCJWCgZSZWdpb24SDgoCaWQYASABKARSAmlkEhIKBHBhdGgYAiABKAlSBHBh"
        "dGgSFgoGbGVuZ3RoGAMgASgDUgZsZW5ndGgSEAoDa2V5GAQgASgMUgNrZXki4AEKBkNvbW1pdBIW"
        "CgZoYW5kbGUYASABKARSBmhhbmRsZRIvCgdleHRlbnRzGAIgAygLMhUuZm9yZWJheS52MS5OZXdF"
        "eHRlbnRSB2V4dGVudHMSFAoFY2xvc2UYAyABKAhSBWNsb3NlEhQKBWFib3J0GAQgASgIUgVhYm9y"
        "dBIZCghtdGltZV9ucxgFIAEoA1IHbXRpbWVOcxIWCgZ3cml0ZXIYBiABKARSBndyaXRlchIWCgZu"
        "dW1iZXIYByABKARSBm51bWJlchIWCgZleHRlbmQYCCABKANSBmV4dGVuZCKdAQoJTmV3RXh0ZW50"
        "Eh8KC2ZpbGVfb2Zmc2V0GAEgASgDUgpmaWxlT2Zmc2V0EhYKBmxlbmd0aBgCIAEoA1IGbGVuZ3Ro"
        "EhoKCGNoZWNrc3VtGAMgASgEUghjaGVja3N1bRIUCgVsZWFzZRgEIAEoBFIFbGVhc2USJQoOc2Vn"
        "bWVudF9vZmZzZXQYBSABKANSDXNlZ21lbnRPZmZzZXQiaQoJQ29tbWl0dGVkEhIKBHNpemUYASAB"
        "KANSBHNpemUSHgoKZ2VuZXJhdGlvbhgCIAEoBFIKZ2VuZXJhdGlvbhISCgRmaWxlGAMgASgEUgRm"
        "aWxlEhQKBWFsb25lGAQgASgIUgVhbG9uZSKIAQoORXh0ZW50c1JlcXVlc3QSFgoGaGFuZGxlGAEg"
        "ASgEUgZoYW5kbGUSFgoGb2Zmc2V0GAIgASgDUgZvZmZzZXQSFgoGbGVuZ3RoGAMgASgDUgZsZW5n"
        "dGgSFgoGaW5saW5lGAQgASgIUgZpbmxpbmUSFgoGbGF5b3V0GAUgASgIUgZsYXlvdXQirAEKB0V4"
        "dGVudHMSEAoDcGluGAEgASgEUgNwaW4SLAoHZXh0ZW50cxgCIAMoCzISLmZvcmViYXkudjEuRXh0"
        "ZW50UgdleHRlbnRzEiwKB3JlZ2lvbnMYAyADKAsyEi5mb3JlYmF5LnYxLlJlZ2lvblIHcmVnaW9u"
        "cxISCgRzaXplGAQgASgDUgRzaXplEh8KC2RhdGFfbGVuZ3RoGAUgASgNUgpkYXRhTGVuZ3RoItMB"
        "CgZFeHRlbnQSHwoLZmlsZV9vZmZzZXQYASABKANSCmZpbGVPZmZzZXQSFgoGbGVuZ3RoGAIgASgD"
        "UgZsZW5ndGgSFgoGcmVnaW9uGAMgASgEUgZyZWdpb24SFgoGb2Zmc2V0GAQgASgDUgZvZmZzZXQS"
        "GgoIY2hlY2tzdW0YBSABKARSCGNoZWNrc3VtEiEKDGNoZWNrX29mZnNldBgGIAEoA1ILY2hlY2tP"
        "ZmZzZXQSIQoMY2hlY2tfbGVuZ3RoGAcgASgDUgtjaGVja0xlbmd0aCIbCgVVbnBpbhISCgRwaW5z"
        "GAEgAygEUgRwaW5zIh8KBUNsb3NlEhYKBmhhbmRsZRgBIAEoBFIGaGFuZGxlIpoBCgVEcmFpbhIW"
        "CgZidWZmZXIYASABKAlSBmJ1ZmZlchIdCgp0aW1lb3V0X25zGAIgASgDUgl0aW1lb3V0TnMSFAoF"
        "bG9jYWwYAyABKAhSBWxvY2FsEhAKA2tleRgEIAEoCVIDa2V5EhQKBWJlbG93GAUgASgJUgViZWxv"
        "dxIcCglvdmVyd3JpdGUYBiABKAhSCW92ZXJ3cml0ZSKMAQoFU3RhZ2USFgoGYnVmZmVyGAEgASgJ"
        "UgZidWZmZXISEgoEcGF0aBgCIAEoCVIEcGF0aBIQCgN1cmwYAyABKAlSA3VybBIXCgdkcnlfcnVu"
        "GAQgASgIUgZkcnlSdW4SGgoIcGFyYWxsZWwYBSABKA1SCHBhcmFsbGVsEhAKA2tleRgGIAEoCVID"
        "a2V5Ii4KBlZlcmlmeRIQCgN1cmwYASABKAlSA3VybBISCgRkZWVwGAIgASgIUgRkZWVwIvwECghQ"
        "cm9ncmVzcxIfCgtmaWxlc190b3RhbBgBIAEoA1IKZmlsZXNUb3RhbBIdCgpmaWxlc19kb25lGAIg"
        "ASgDUglmaWxlc0RvbmUSHwoLYnl0ZXNfdG90YWwYAyABKANSCmJ5dGVzVG90YWwSHQoKYnl0ZXNf"
        "ZG9uZRgEIAEoA1IJYnl0ZXNEb25lEiMKDWZpbGVzX3NraXBwZWQYBSABKANSDGZpbGVzU2tpcHBl"
        "ZBISCgRkb25lGAYgASgIUgRkb25lEisKBmZhaWxlZBgHIAMoCzITLmZvcmViYXkudjEuRmFpbHVy"
        "ZVIGZmFpbGVkEhIKBGhlbGQYCCADKAlSBGhlbGQSEgoEb3BlbhgJIAMoCVIEb3BlbhIdCgpoZWxk"
        "X3RvdGFsGAogASgDUgloZWxkVG90YWwSHQoKb3Blbl90b3RhbBgLIAEoA1IJb3BlblRvdGFsEiEK"
        "DGZhaWxlZF90b3RhbBgMIAEoA1ILZmFpbGVkVG90YWwSHQoKbGFzdF9lcnJvchgNIAEoCVIJbGFz"
        "dEVycm9yEhQKBW5hbWVzGA4gAygJUgVuYW1lcxIQCgNqb2IYDyABKAlSA2pvYhIbCgl0aW1lZF9v"
        "dXQYECABKAhSCHRpbWVkT3V0EigKEGJ5dGVzX25vdF9jb3BpZWQYESABKANSDmJ5dGVzTm90Q29w"
        "aWVkEh4KCnN1cGVyc2VkZWQYEiADKAlSCnN1cGVyc2VkZWQSKQoQc3VwZXJzZWRlZF90b3RhbBgT"
        "IAEoA1IPc3VwZXJzZWRlZFRvdGFsEigKEG5vZGVfbG9jYWxfdG90YWwYFCABKANSDm5vZGVMb2Nh"
        "bFRvdGFsIl8KB0ZhaWx1cmUSEgoEcGF0aBgBIAEoCVIEcGF0aBISCgRraW5kGAIgASgNUgRraW5k"
        "EhYKBnJlYXNvbhgDIAEoCVIGcmVhc29uEhQKBWJ5dGVzGAQgASgDUgVieXRlcyIyCgpKb2JSZXF1"
        "ZXN0Eg4KAmlkGAEgASgJUgJpZBIUCgV3YXRjaBgCIAEoCFIFd2F0Y2giaQoISm9iUmVwbHkSEgoE"
        "anNvbhgBIAEoDFIEanNvbhIeCgpzdXBlcnNlZGVkGAIgAygJUgpzdXBlcnNlZGVkEikKEHN1cGVy"
        "c2VkZWRfdG90YWwYAyABKANSD3N1cGVyc2VkZWRUb3RhbCKPAQoITGlmZXRpbWUSEgoEanNvbhgB"
        "IAEoDFIEanNvbhI7CgpzdXBlcnNlZGVkGAIgAygLMhsuZm9yZWJheS52MS5TdXBlcnNlZGVkU3Rl"
        "cHNSCnN1cGVyc2VkZWQSMgoHZHJvcHBlZBgDIAMoCzIYLmZvcmViYXkudjEuRHJvcHBlZEZpbGVz"
        "Ugdkcm9wcGVkIp0BCg9TdXBlcnNlZGVkU3RlcHMSFgoGYnVmZmVyGAEgASgJUgZidWZmZXISFAoF"
        "dG90YWwYAiABKANSBXRvdGFsEhQKBWZpbGVzGAMgASgDUgVmaWxlcxIUCgVieXRlcxgEIAEoA1IF"
        "Ynl0ZXMSMAoFc3RlcHMYBSADKAsyGi5mb3JlYmF5LnYxLlN1cGVyc2VkZWRTdGVwUgVzdGVwcyJg"
        "Cg5TdXBlcnNlZGVkU3RlcBISCgRzdGVwGAEgASgJUgRzdGVwEg4KAmJ5GAIgASgJUgJieRIUCgVm"
        "aWxlcxgDIAEoA1IFZmlsZXMSFAoFYnl0ZXMYBCABKANSBWJ5dGVzIk4KDERyb3BwZWRGaWxlcxIS"
        "CgRub2RlGAEgASgJUgRub2RlEhQKBWZpbGVzGAIgASgDUgVmaWxlcxIUCgVieXRlcxgDIAEoA1IF"
        "Ynl0ZXMijgEKDExpZmV0aW1lT3BlbhISCgRqc29uGAEgASgMUgRqc29uEioKBmNyZWF0ZRgCIAMo"
        "CzISLmZvcmViYXkudjEuQnVmZmVyUgZjcmVhdGUSFgoGYXR0YWNoGAMgASgIUgZhdHRhY2gSFAoF"
        "YmVnaW4YBCABKAhSBWJlZ2luEhAKA3JhbhgFIAEoCFIDcmFuIk0KDUxpZmV0aW1lTGVhdmUSEAoD"
        "a2V5GAEgASgJUgNrZXkSEgoEbm9kZRgCIAEoCVIEbm9kZRIWCgZmYWlsZWQYAyABKAhSBmZhaWxl"
        "ZCJqCgtMaWZldGltZUVuZBIQCgNrZXkYASABKAlSA2tleRIUCgVodXJyeRgCIAEoCFIFaHVycnkS"
        "FgoGZmFpbGVkGAMgASgIUgZmYWlsZWQSGwoJd2hlbl9sZWZ0GAQgASgIUgh3aGVuTGVmdCJOCgtM"
        "aWZldGltZUR1ZRIQCgNrZXkYASABKAlSA2tleRIVCgZkdWVfbnMYAiABKANSBWR1ZU5zEhYKBndh"
        "cm5lZBgDIAEoCFIGd2FybmVkIi8KCUxpZmV0aW1lcxIQCgNrZXkYASABKAlSA2tleRIQCgNqb2IY"
        "AiABKAlSA2pvYiLMAgoDVHhuEhYKBmJ1ZmZlchgBIAEoCVIGYnVmZmVyEg4KAmlkGAIgASgJUgJp"
        "ZBIgCgtkZXN0aW5hdGlvbhgDIAEoCVILZGVzdGluYXRpb24SEAoDa2V5GAQgASgJUgNrZXkSFAoF"
        "c3RhdGUYBSABKAlSBXN0YXRlEhIKBHBhdGgYBiABKAlSBHBhdGgSEAoDdWlkGAcgASgNUgN1aWQS"
        "EAoDZ2lkGAggASgNUgNnaWQSHQoKY3JlYXRlZF9ucxgJIAEoA1IJY3JlYXRlZE5zEhkKCGVuZGVk"
        "X25zGAogASgDUgdlbmRlZE5zEhkKCGxlYXNlX25zGAsgASgDUgdsZWFzZU5zEhgKB3JlcGxhY2UY"
        "DCADKAlSB3JlcGxhY2USFgoGcmVhc29uGA0gASgJUgZyZWFzb24SFAoFdGFza3MYDiABKA1SBXRh"
        "c2tzIisKBFR4bnMSIwoEdHhucxgBIAMoCzIPLmZvcmViYXkudjEuVHhuUgR0eG5zInEKCFR4bkJl"
        "Z2luEhYKBmJ1ZmZlchgBIAEoCVIGYnVmZmVyEiAKC2Rlc3RpbmF0aW9uGAIgASgJUgtkZXN0aW5h"
        "dGlvbhIQCgNrZXkYAyABKAlSA2tleRIZCghsZWFzZV9ucxgEIAEoA1IHbGVhc2VOcyIxCgdUeG5O"
        "YW1lEhYKBmJ1ZmZlchgBIAEoCVIGYnVmZmVyEg4KAmlkGAIgASgJUgJpZCJgCghUeG5BZG9wdBIW"
        "CgZidWZmZXIYASABKAlSBmJ1ZmZlchIOCgJpZBgCIAEoCVICaWQSEgoEdGFzaxgDIAEoCVIEdGFz"
        "axIYCgdhdHRlbXB0GAQgASgJUgdhdHRlbXB0IiQKClR4bkFkb3B0ZWQSFgoGd2lubmVyGAEgASgJ"
        "UgZ3aW5uZXIiYQoJVHhuQ29tbWl0EhYKBmJ1ZmZlchgBIAEoCVIGYnVmZmVyEg4KAmlkGAIgASgJ"
        "UgJpZBIYCgdyZXBsYWNlGAMgAygJUgdyZXBsYWNlEhIKBHdhaXQYBCABKAhSBHdhaXQiLwoFTm9k"
        "ZXMSJgoFbm9kZXMYASADKAsyEC5mb3JlYmF5LnYxLk5vZGVSBW5vZGVzIs8DCgROb2RlEhIKBG5h"
        "bWUYASABKAlSBG5hbWUSGgoIaW5zdGFuY2UYAiABKARSCGluc3RhbmNlEhQKBXN0YXRlGAMgASgJ"
        "UgVzdGF0ZRIYCgdzZXNzaW9uGAQgASgJUgdzZXNzaW9uEhYKBmZhYnJpYxgFIAEoCVIGZmFicmlj"
        "EhQKBWFkbWluGAYgASgJUgVhZG1pbhIfCgttaW5fdmVyc2lvbhgHIAEoDVIKbWluVmVyc2lvbhIf"
        "CgttYXhfdmVyc2lvbhgIIAEoDVIKbWF4VmVyc2lvbhIWCgZzZXJ2ZXIYCSABKAlSBnNlcnZlchIW"
        "CgZtZW1vcnkYCiABKANSBm1lbW9yeRIfCgttZW1vcnlfZnJlZRgLIAEoA1IKbWVtb3J5RnJlZRIh"
        "CgxtZW1vcnlfZGlydHkYDCABKANSC21lbW9yeURpcnR5EhIKBGRpc2sYDSABKANSBGRpc2sSGwoJ"
        "ZGlza19mcmVlGA4gASgDUghkaXNrRnJlZRIdCgpkaXNrX2RpcnR5GA8gASgDUglkaXNrRGlydHkS"
        "GQoIc2luY2VfbnMYECABKANSB3NpbmNlTnMSGAoHcmVmdXNlZBgRIAEoCVIHcmVmdXNlZCIeCghO"
        "b2RlTmFtZRISCgRuYW1lGAEgASgJUgRuYW1lIkUKCU5vZGVEcmFpbhISCgRuYW1lGAEgASgJUgRu"
        "YW1lEhQKBWxvY2FsGAIgASgIUgVsb2NhbBIOCgJ0bxgDIAMoCVICdG8ikwEKDU5vZGVGb3Jnb3R0"
        "ZW4SJQoEbG9zdBgBIAMoCzIRLmZvcmViYXkudjEuRW50cnlSBGxvc3QSHQoKbG9zdF90b3RhbBgC"
        "IAEoA1IJbG9zdFRvdGFsEh0KCmxvc3RfYnl0ZXMYAyABKANSCWxvc3RCeXRlcxIdCgprZXB0X3Rv"
        "dGFsGAQgASgDUglrZXB0VG90YWwiRwoMVG9rZW5SZXF1ZXN0EhYKBmJ1ZmZlchgBIAEoCVIGYnVm"
        "ZmVyEh8KC2xpZmV0aW1lX25zGAIgASgDUgpsaWZldGltZU5zIjwKBVRva2VuEhQKBXRva2VuGAEg"
        "ASgMUgV0b2tlbhIdCgpleHBpcmVzX25zGAIgASgDUglleHBpcmVzTnMiTAoESG9sZBIWCgZidWZm"
        "ZXIYASABKAlSBmJ1ZmZlchIUCgVwYXRocxgCIAMoCVIFcGF0aHMSFgoGZnJlZXplGAMgASgIUgZm"
        "cmVlemUikgEKBFRha2USFgoGYnVmZmVyGAEgASgJUgZidWZmZXISEAoDZGlyGAIgASgEUgNkaXIS"
        "EgoEbmFtZRgDIAEoCVIEbmFtZRISCgRmaWxlGAQgASgEUgRmaWxlEh4KCmdlbmVyYXRpb24YBSAB"
        "KARSCmdlbmVyYXRpb24SGAoHcmVwbGljYRgGIAEoCFIHcmVwbGljYSJJCgdSZWNoZWNrEhYKBmJ1"
        "ZmZlchgBIAEoCVIGYnVmZmVyEhIKBHBhdGgYAiABKAlSBHBhdGgSEgoEdHJlZRgDIAEoCFIEdHJl"
        "ZSIzCgVOYW1lcxIWCgZidWZmZXIYASABKAlSBmJ1ZmZlchISCgRjYWxsGAIgASgMUgRjYWxsIiQK"
        "Ck5hbWVzUmVwbHkSFgoGYW5zd2VyGAEgASgMUgZhbnN3ZXIivwEKC1BsYWNlUmVuYW1lEhYKBmJ1"
        "ZmZlchgBIAEoCVIGYnVmZmVyEhkKCGZyb21fZGlyGAIgASgEUgdmcm9tRGlyEhsKCWZyb21fbmFt"
        "ZRgDIAEoCVIIZnJvbU5hbWUSFQoGdG9fZGlyGAQgASgEUgV0b0RpchIXCgd0b19uYW1lGAUgASgJ"
        "UgZ0b05hbWUSFgoGZXhwZWN0GAYgASgEUgZleHBlY3QSGAoHcmVwbGFjZRgHIAEoCFIHcmVwbGFj"
        "ZSKXAQoLUGxhY2VSZW1vdmUSFgoGYnVmZmVyGAEgASgJUgZidWZmZXISEAoDZGlyGAIgASgEUgNk"
        "aXISEgoEbmFtZRgDIAEoCVIEbmFtZRIWCgZleHBlY3QYBCABKARSBmV4cGVjdBIeCgpnZW5lcmF0"
        "aW9uGAUgASgEUgpnZW5lcmF0aW9uEhIKBHBhdGgYBiABKAlSBHBhdGgiigEKBkZvbGxvdxIWCgZi"
        "dWZmZXIYASABKAlSBmJ1ZmZlchISCgRmaWxlGAIgASgEUgRmaWxlEhAKA2RpchgDIAEoBFIDZGly"
        "EhIKBG5hbWUYBCABKAlSBG5hbWUSFQoGdG9fZGlyGAUgASgEUgV0b0RpchIXCgd0b19uYW1lGAYg"
        "ASgJUgZ0b05hbWUiVQoHRGlzY2FyZBIWCgZidWZmZXIYASABKAlSBmJ1ZmZlchISCgRmaWxlGAIg"
        "ASgEUgRmaWxlEh4KCmdlbmVyYXRpb24YAyABKARSCmdlbmVyYXRpb24i4AEKCVJlcGxpY2F0ZRIW"
        "CgZidWZmZXIYASABKAlSBmJ1ZmZlchISCgRmaWxlGAIgASgEUgRmaWxlEh4KCmdlbmVyYXRpb24Y"
        "AyABKARSCmdlbmVyYXRpb24SFAoFd2hvbGUYBCABKAhSBXdob2xlEi8KB2V4dGVudHMYBSADKAsy"
        "FS5mb3JlYmF5LnYxLk5ld0V4dGVudFIHZXh0ZW50cxIUCgVwYXJ0cxgGIAEoBFIFcGFydHMSFgoG"
        "YmVmb3JlGAcgASgNUgZiZWZvcmUSEgoEbW9yZRgIIAEoCFIEbW9yZSrHCQoEVHlwZRIUChBUWVBF"
        "X1VOU1BFQ0lGSUVEEAASDgoKVFlQRV9IRUxMTxABEg8KC1RZUEVfQ0FOQ0VMEAISDgoKVFlQRV9Q"
        "Uk9WRRAFEg4KClRZUEVfUFVMU0UQBhIPCgtUWVBFX1NUQVRVUxADEhIKDlRZUEVfU1VCU0NSSUJF"
        "EAQSFgoSVFlQRV9CVUZGRVJfQ1JFQVRFEAoSEwoPVFlQRV9CVUZGRVJfR0VUEAsSFAoQVFlQRV9C"
        "VUZGRVJfTElTVBAMEhcKE1RZUEVfQlVGRkVSX0RFU1RST1kQDRIXChNUWVBFX0JVRkZFUl9SRUJV"
        "SUxEEA4SDQoJVFlQRV9TVEFUEBQSDQoJVFlQRV9MSVNUEBUSDgoKVFlQRV9NS0RJUhAWEg8KC1RZ"
        "UEVfUkVOQU1FEBcSDwoLVFlQRV9SRU1PVkUQGBIQCgxUWVBFX1NFVEFUVFIQGRINCglUWVBFX0xP"
        "U1QQGhIOCgpUWVBFX01LTk9EEBsSEgoOVFlQRV9TRVRfWEFUVFIQHBIPCgtUWVBFX1hBVFRSUxAd"
        "EhEKDVRZUEVfRVhDSEFOR0UQExINCglUWVBFX09QRU4QHhIPCgtUWVBFX0NPTU1JVBAfEhAKDFRZ"
        "UEVfRVhURU5UUxAgEg4KClRZUEVfVU5QSU4QIRIOCgpUWVBFX0NMT1NFECISDgoKVFlQRV9MRUFT"
        "RRAjEg8KC1RZUEVfUkVUVVJOECQSDgoKVFlQRV9EUkFJThAoEhEKDVRZUEVfU1RBR0VfSU4QKRIS"
        "Cg5UWVBFX1NUQUdFX09VVBAqEg8KC1RZUEVfVkVSSUZZECsSEAoMVFlQRV9SRUNFSVBUECwSDgoK"
        "VFlQRV9OT0RFUxAyEhMKD1RZUEVfTk9ERV9EUkFJThAzEhUKEVRZUEVfTk9ERV9VTkRSQUlOEDAS"
        "FAoQVFlQRV9OT0RFX0ZPUkdFVBA0EhIKDlRZUEVfTk9ERV9MT1NTEC8SDgoKVFlQRV9UT0tFThA1"
        "Eg0KCVRZUEVfSk9CUxA2EgwKCFRZUEVfSk9CEDcSEwoPVFlQRV9KT0JfQ0FOQ0VMEDgSFgoSVFlQ"
        "RV9MSUZFVElNRV9PUEVOEDkSFwoTVFlQRV9MSUZFVElNRV9MRUFWRRA6EhUKEVRZUEVfTElGRVRJ"
        "TUVfRU5EEDsSFQoRVFlQRV9MSUZFVElNRV9EVUUQLhISCg5UWVBFX0xJRkVUSU1FUxAtEhIKDlRZ"
        "UEVfVFhOX0JFR0lOEEYSEgoOVFlQRV9UWE5fQURPUFQQRxITCg9UWVBFX1RYTl9DT01NSVQQSBIS"
        "Cg5UWVBFX1RYTl9BQk9SVBBJEhIKDlRZUEVfVFhOX1JFTkVXEEoSEAoMVFlQRV9UWE5fR0VUEEsS"
        "EQoNVFlQRV9UWE5fTElTVBBMEg0KCVRZUEVfSE9MRBA8Eg0KCVRZUEVfVEFLRRA9EhAKDFRZUEVf"
        "RElTQ0FSRBA+EhIKDlRZUEVfUkVQTElDQVRFED8SEAoMVFlQRV9SRUNIRUNLEEASFQoRVFlQRV9Q"
        "TEFDRV9SRU5BTUUQQRIVChFUWVBFX1BMQUNFX1JFTU9WRRBCEg4KClRZUEVfTkFNRVMQQxIPCgtU"
        "WVBFX0ZPTExPVxBEQhdaFWZvcmViYXkvaW50ZXJuYWwvd2lyZWIGcHJvdG8z"
    )
)
_classes = message_factory.GetMessageClassesForFiles(["internal/wire/forebay.proto"], _pool)

TYPE_UNSPECIFIED = 0
TYPE_HELLO = 1
TYPE_CANCEL = 2
TYPE_PROVE = 5
TYPE_PULSE = 6
TYPE_STATUS = 3
TYPE_SUBSCRIBE = 4
TYPE_BUFFER_CREATE = 10
TYPE_BUFFER_GET = 11
TYPE_BUFFER_LIST = 12
TYPE_BUFFER_DESTROY = 13
TYPE_BUFFER_REBUILD = 14
TYPE_STAT = 20
TYPE_LIST = 21
TYPE_MKDIR = 22
TYPE_RENAME = 23
TYPE_REMOVE = 24
TYPE_SETATTR = 25
TYPE_LOST = 26
TYPE_MKNOD = 27
TYPE_SET_XATTR = 28
TYPE_XATTRS = 29
TYPE_EXCHANGE = 19
TYPE_OPEN = 30
TYPE_COMMIT = 31
TYPE_EXTENTS = 32
TYPE_UNPIN = 33
TYPE_CLOSE = 34
TYPE_LEASE = 35
TYPE_RETURN = 36
TYPE_DRAIN = 40
TYPE_STAGE_IN = 41
TYPE_STAGE_OUT = 42
TYPE_VERIFY = 43
TYPE_RECEIPT = 44
TYPE_NODES = 50
TYPE_NODE_DRAIN = 51
TYPE_NODE_UNDRAIN = 48
TYPE_NODE_FORGET = 52
TYPE_NODE_LOSS = 47
TYPE_TOKEN = 53
TYPE_JOBS = 54
TYPE_JOB = 55
TYPE_JOB_CANCEL = 56
TYPE_LIFETIME_OPEN = 57
TYPE_LIFETIME_LEAVE = 58
TYPE_LIFETIME_END = 59
TYPE_LIFETIME_DUE = 46
TYPE_LIFETIMES = 45
TYPE_TXN_BEGIN = 70
TYPE_TXN_ADOPT = 71
TYPE_TXN_COMMIT = 72
TYPE_TXN_ABORT = 73
TYPE_TXN_RENEW = 74
TYPE_TXN_GET = 75
TYPE_TXN_LIST = 76
TYPE_HOLD = 60
TYPE_TAKE = 61
TYPE_DISCARD = 62
TYPE_REPLICATE = 63
TYPE_RECHECK = 64
TYPE_PLACE_RENAME = 65
TYPE_PLACE_REMOVE = 66
TYPE_NAMES = 67
TYPE_FOLLOW = 68

Empty = _classes["forebay.v1.Empty"]
Hello = _classes["forebay.v1.Hello"]
Challenge = _classes["forebay.v1.Challenge"]
Prove = _classes["forebay.v1.Prove"]
Pulse = _classes["forebay.v1.Pulse"]
Welcome = _classes["forebay.v1.Welcome"]
Error = _classes["forebay.v1.Error"]
Cancel = _classes["forebay.v1.Cancel"]
StatusRequest = _classes["forebay.v1.StatusRequest"]
StatusReply = _classes["forebay.v1.StatusReply"]
Subscribe = _classes["forebay.v1.Subscribe"]
Event = _classes["forebay.v1.Event"]
BufferName = _classes["forebay.v1.BufferName"]
BufferDestroy = _classes["forebay.v1.BufferDestroy"]
BufferRebuilt = _classes["forebay.v1.BufferRebuilt"]
RebuiltFile = _classes["forebay.v1.RebuiltFile"]
Buffers = _classes["forebay.v1.Buffers"]
Buffer = _classes["forebay.v1.Buffer"]
TierRule = _classes["forebay.v1.TierRule"]
Entry = _classes["forebay.v1.Entry"]
Entries = _classes["forebay.v1.Entries"]
Flushed = _classes["forebay.v1.Flushed"]
PathRequest = _classes["forebay.v1.PathRequest"]
ListRequest = _classes["forebay.v1.ListRequest"]
ListReply = _classes["forebay.v1.ListReply"]
Mkdir = _classes["forebay.v1.Mkdir"]
Mknod = _classes["forebay.v1.Mknod"]
Rename = _classes["forebay.v1.Rename"]
ExchangeNames = _classes["forebay.v1.ExchangeNames"]
Remove = _classes["forebay.v1.Remove"]
Removed = _classes["forebay.v1.Removed"]
SetAttr = _classes["forebay.v1.SetAttr"]
SetXattr = _classes["forebay.v1.SetXattr"]
Xattrs = _classes["forebay.v1.Xattrs"]
Xattr = _classes["forebay.v1.Xattr"]
Open = _classes["forebay.v1.Open"]
Opened = _classes["forebay.v1.Opened"]
LeaseRequest = _classes["forebay.v1.LeaseRequest"]
Lease = _classes["forebay.v1.Lease"]
ReturnLease = _classes["forebay.v1.ReturnLease"]
Region = _classes["forebay.v1.Region"]
Commit = _classes["forebay.v1.Commit"]
NewExtent = _classes["forebay.v1.NewExtent"]
Committed = _classes["forebay.v1.Committed"]
ExtentsRequest = _classes["forebay.v1.ExtentsRequest"]
Extents = _classes["forebay.v1.Extents"]
Extent = _classes["forebay.v1.Extent"]
Unpin = _classes["forebay.v1.Unpin"]
Close = _classes["forebay.v1.Close"]
Drain = _classes["forebay.v1.Drain"]
Stage = _classes["forebay.v1.Stage"]
Verify = _classes["forebay.v1.Verify"]
Progress = _classes["forebay.v1.Progress"]
Failure = _classes["forebay.v1.Failure"]
JobRequest = _classes["forebay.v1.JobRequest"]
JobReply = _classes["forebay.v1.JobReply"]
Lifetime = _classes["forebay.v1.Lifetime"]
SupersededSteps = _classes["forebay.v1.SupersededSteps"]
SupersededStep = _classes["forebay.v1.SupersededStep"]
DroppedFiles = _classes["forebay.v1.DroppedFiles"]
LifetimeOpen = _classes["forebay.v1.LifetimeOpen"]
LifetimeLeave = _classes["forebay.v1.LifetimeLeave"]
LifetimeEnd = _classes["forebay.v1.LifetimeEnd"]
LifetimeDue = _classes["forebay.v1.LifetimeDue"]
Lifetimes = _classes["forebay.v1.Lifetimes"]
Txn = _classes["forebay.v1.Txn"]
Txns = _classes["forebay.v1.Txns"]
TxnBegin = _classes["forebay.v1.TxnBegin"]
TxnName = _classes["forebay.v1.TxnName"]
TxnAdopt = _classes["forebay.v1.TxnAdopt"]
TxnAdopted = _classes["forebay.v1.TxnAdopted"]
TxnCommit = _classes["forebay.v1.TxnCommit"]
Nodes = _classes["forebay.v1.Nodes"]
Node = _classes["forebay.v1.Node"]
NodeName = _classes["forebay.v1.NodeName"]
NodeDrain = _classes["forebay.v1.NodeDrain"]
NodeForgotten = _classes["forebay.v1.NodeForgotten"]
TokenRequest = _classes["forebay.v1.TokenRequest"]
Token = _classes["forebay.v1.Token"]
Hold = _classes["forebay.v1.Hold"]
Take = _classes["forebay.v1.Take"]
Recheck = _classes["forebay.v1.Recheck"]
Names = _classes["forebay.v1.Names"]
NamesReply = _classes["forebay.v1.NamesReply"]
PlaceRename = _classes["forebay.v1.PlaceRename"]
PlaceRemove = _classes["forebay.v1.PlaceRemove"]
Follow = _classes["forebay.v1.Follow"]
Discard = _classes["forebay.v1.Discard"]
Replicate = _classes["forebay.v1.Replicate"]
