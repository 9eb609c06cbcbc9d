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
        "cGxhY2UYBCABKAhSCW5vUmVwbGFjZSJmCgZSZW1vdmUSFgoGYnVmZmVyGAEgASgJUgZidWZmZXIS"
        "EgoEcGF0aBgCIAEoCVIEcGF0aBIcCglyZWN1cnNpdmUYAyABKAhSCXJlY3Vyc2l2ZRISCgRwYWdl"
        "GAQgASgDUgRwYWdlIlUKB1JlbW92ZWQSFAoFZmlsZXMYASABKANSBWZpbGVzEiAKC2RpcmVjdG9y"
        "aWVzGAIgASgDUgtkaXJlY3RvcmllcxISCgRtb3JlGAMgASgIUgRtb3JlIsIBCgdTZXRBdHRyEhYK"
        "BmJ1ZmZlchgBIAEoCVIGYnVmZmVyEhIKBHBhdGgYAiABKAlSBHBhdGgSFwoEbW9kZRgDIAEoDUgA"
        "UgRtb2RliAEBEhUKA3VpZBgEIAEoDUgBUgN1aWSIAQESFQoDZ2lkGAUgASgNSAJSA2dpZIgBARIe"
        "CghtdGltZV9ucxgGIAEoA0gDUgdtdGltZU5ziAEBQgcKBV9tb2RlQgYKBF91aWRCBgoEX2dpZEIL"
        "CglfbXRpbWVfbnMicAoIU2V0WGF0dHISFgoGYnVmZmVyGAEgASgJUgZidWZmZXISEgoEcGF0aBgC"
        "IAEoCVIEcGF0aBISCgRuYW1lGAMgASgMUgRuYW1lEhQKBXZhbHVlGAQgASgMUgV2YWx1ZRIOCgJv"
        "cBgFIAEoDVICb3AiUwoGWGF0dHJzEikKBnhhdHRycxgBIAMoCzIRLmZvcmViYXkudjEuWGF0dHJS"
        "BnhhdHRycxIeCgp1bnJlYWRhYmxlGAIgASgIUgp1bnJlYWRhYmxlIkkKBVhhdHRyEhIKBG5hbWUY"
        "ASABKAxSBG5hbWUSFAoFdmFsdWUYAiABKAxSBXZhbHVlEhYKBnN0b3JlZBgDIAEoCFIGc3RvcmVk"
        "ItoDCgRPcGVuEhYKBmhhbmRsZRgBIAEoBFIGaGFuZGxlEhYKBmJ1ZmZlchgCIAEoCVIGYnVmZmVy"
        "EhIKBHBhdGgYAyABKAlSBHBhdGgSFAoFd3JpdGUYBCABKAhSBXdyaXRlEhYKBmNyZWF0ZRgFIAEo"
        "CFIGY3JlYXRlEhwKCWV4Y2x1c2l2ZRgGIAEoCFIJZXhjbHVzaXZlEhoKCHRydW5jYXRlGAcgASgI"
        "Ugh0cnVuY2F0ZRISCgRtb2RlGAggASgNUgRtb2RlEh8KC3Jlc3VtZV9maWxlGAkgASgEUgpyZXN1"
        "bWVGaWxlEisKEXJlc3VtZV9nZW5lcmF0aW9uGAogASgEUhByZXN1bWVHZW5lcmF0aW9uEikKEHJl"
        "c3VtZV9jb21taXR0ZWQYCyABKAhSD3Jlc3VtZUNvbW1pdHRlZBISCgR3YW50GAwgASgNUgR3YW50"
        "EhIKBGZpbGUYDSABKARSBGZpbGUSHgoKZ2VuZXJhdGlvbhgOIAEoBFIKZ2VuZXJhdGlvbhIjCg1y"
        "ZXN1bWVfd3JpdGVyGA8gASgEUgxyZXN1bWVXcml0ZXISFgoGbGluZWFyGBUgASgIUgZsaW5lYXIS"
        "FAoFZmVuY2UYFCABKAhSBWZlbmNlItkBCgZPcGVuZWQSJwoFZW50cnkYASABKAsyES5mb3JlYmF5"
        "LnYxLkVudHJ5UgVlbnRyeRIeCgpnZW5lcmF0aW9uGAIgASgEUgpnZW5lcmF0aW9uEi0KB2V4dGVu"
        "dHMYAyABKAsyEy5mb3JlYmF5LnYxLkV4dGVudHNSB2V4dGVudHMSJQoOYWxyZWFkeV9jbG9zZWQY"
        "BCABKAhSDWFscmVhZHlDbG9zZWQSHAoJY29tbWl0dGVkGAUgASgEUgljb21taXR0ZWQSEgoEdGll"
        "chgGIAEoDVIEdGllciKUAQoMTGVhc2VSZXF1ZXN0EhYKBmJ1ZmZlchgBIAEoCVIGYnVmZmVyEhQK"
        "BWJ5dGVzGAIgASgDUgVieXRlcxISCgRmaXRzGAMgASgDUgRmaXRzEhIKBHRpZXIYBCABKA1SBHRp"
        "ZXISFAoFZmlsZXMYBSABKA1SBWZpbGVzEhgKB2NvbW1pdHMYBiABKAhSB2NvbW1pdHMizQEKBUxl"
        "YXNlEg4KAmlkGAEgASgEUgJpZBIqCgZyZWdpb24YAiABKAsyEi5mb3JlYmF5LnYxLlJlZ2lvblIG"
        "cmVnaW9uEhYKBm9mZnNldBgDIAEoA1IGb2Zmc2V0EhYKBmxlbmd0aBgEIAEoA1IGbGVuZ3RoEh0K"
        "CmRhdGFfc3RhcnQYBSABKANSCWRhdGFTdGFydBIhCgxyZWNvcmRfZmxvb3IYBiABKANSC3JlY29y"
        "ZEZsb29yEhYKBnRpZXJlZBgHIAEoCFIGdGllcmVkIh0KC1JldHVybkxlYXNlEg4KAmlkGAEgASgE"
        "UgJpZCJWCgZSZWdpb24SDgoCaWQYASABKARSAmlkEhIKBHBhdGgYAiABKAlSBHBhdGgSFgoGbGVu"
        "Z3RoGAMgASgDUgZsZW5ndGgSEAoDa2V5GAQgASgMUgNrZXki4AEKBkNvbW1pdBIWCgZoYW5kbGUY"
        "ASABKARSBmhhbmRsZRIvCgdleHRlbnRzGAIgAygLMhUuZm9yZWJheS52MS5OZXdFeHRlbnRSB2V4"
        "dGVudHMSFAoFY2xvc2UYAyABKAhSBWNsb3NlEhQKBWFib3J0GAQgASgIUgVhYm9ydBIZCghtdGlt"
        "ZV9ucxgFIAEoA1IHbXRpbWVOcxIWCgZ3cml0ZXIYBiABKARSBndyaXRlchIWCgZudW1iZXIYByAB"
        "KARSBm51bWJlchIWCgZleHRlbmQYCCABKANSBmV4dGVuZCKdAQoJTmV3RXh0ZW50Eh8KC2ZpbGVf"
        "b2Zmc2V0GAEgASgDUgpmaWxlT2Zmc2V0EhYKBmxlbmd0aBgCIAEoA1IGbGVuZ3RoEhoKCGNoZWNr"
        "c3VtGAMgASgEUghjaGVja3N1bRIUCgVsZWFzZRgEIAEoBFIFbGVhc2USJQoOc2VnbWVudF9vZmZz"
        "ZXQYBSABKANSDXNlZ21lbnRPZmZzZXQiaQoJQ29tbWl0dGVkEhIKBHNpemUYASABKANSBHNpemUS"
        "HgoKZ2VuZXJhdGlvbhgCIAEoBFIKZ2VuZXJhdGlvbhISCgRmaWxlGAMgASgEUgRmaWxlEhQKBWFs"
        "b25lGAQgASgIUgVhbG9uZSKIAQoORXh0ZW50c1JlcXVlc3QSFgoGaGFuZGxlGAEgASgEUgZoYW5k"
        "bGUSFgoGb2Zmc2V0GAIgASgDUgZvZmZzZXQSFgoGbGVuZ3RoGAMgASgDUgZsZW5ndGgSFgoGaW5s"
        "aW5lGAQgASgIUgZpbmxpbmUSFgoGbGF5b3V0GAUgASgIUgZsYXlvdXQirAEKB0V4dGVudHMSEAoD"
        "cGluGAEgASgEUgNwaW4SLAoHZXh0ZW50cxgCIAMoCzISLmZvcmViYXkudjEuRXh0ZW50UgdleHRl"
        "bnRzEiwKB3JlZ2lvbnMYAyADKAsyEi5mb3JlYmF5LnYxLlJlZ2lvblIHcmVnaW9ucxISCgRzaXpl"
        "GAQgASgDUgRzaXplEh8KC2RhdGFfbGVuZ3RoGAUgASgNUgpkYXRhTGVuZ3RoItMBCgZFeHRlbnQS"
        "HwoLZmlsZV9vZmZzZXQYASABKANSCmZpbGVPZmZzZXQSFgoGbGVuZ3RoGAIgASgDUgZsZW5ndGgS"
        "FgoGcmVnaW9uGAMgASgEUgZyZWdpb24SFgoGb2Zmc2V0GAQgASgDUgZvZmZzZXQSGgoIY2hlY2tz"
        "dW0YBSABKARSCGNoZWNrc3VtEiEKDGNoZWNrX29mZnNldBgGIAEoA1ILY2hlY2tPZmZzZXQSIQoM"
        "Y2hlY2tfbGVuZ3RoGAcgASgDUgtjaGVja0xlbmd0aCIbCgVVbnBpbhISCgRwaW5zGAEgAygEUgRw"
        "aW5zIh8KBUNsb3NlEhYKBmhhbmRsZRgBIAEoBFIGaGFuZGxlIpoBCgVEcmFpbhIWCgZidWZmZXIY"
        "ASABKAlSBmJ1ZmZlchIdCgp0aW1lb3V0X25zGAIgASgDUgl0aW1lb3V0TnMSFAoFbG9jYWwYAyAB"
        "KAhSBWxvY2FsEhAKA2tleRgEIAEoCVIDa2V5EhQKBWJlbG93GAUgASgJUgViZWxvdxIcCglvdmVy"
        "d3JpdGUYBiABKAhSCW92ZXJ3cml0ZSKMAQoFU3RhZ2USFgoGYnVmZmVyGAEgASgJUgZidWZmZXIS"
        "EgoEcGF0aBgCIAEoCVIEcGF0aBIQCgN1cmwYAyABKAlSA3VybBIXCgdkcnlfcnVuGAQgASgIUgZk"
        "cnlSdW4SGgoIcGFyYWxsZWwYBSABKA1SCHBhcmFsbGVsEhAKA2tleRgGIAEoCVIDa2V5Ii4KBlZl"
        "cmlmeRIQCgN1cmwYASABKAlSA3VybBISCgRkZWVwGAIgASgIUgRkZWVwIvwECghQcm9ncmVzcxIf"
        "CgtmaWxlc190b3RhbBgBIAEoA1IKZmlsZXNUb3RhbBIdCgpmaWxlc19kb25lGAIgASgDUglmaWxl"
        "c0RvbmUSHwoLYnl0ZXNfdG90YWwYAyABKANSCmJ5dGVzVG90YWwSHQoKYnl0ZXNfZG9uZRgEIAEo"
        "A1IJYnl0ZXNEb25lEiMKDWZpbGVzX3NraXBwZWQYBSABKANSDGZpbGVzU2tpcHBlZBISCgRkb25l"
        "GAYgASgIUgRkb25lEisKBmZhaWxlZBgHIAMoCzITLmZvcmViYXkudjEuRmFpbHVyZVIGZmFpbGVk"
        "EhIKBGhlbGQYCCADKAlSBGhlbGQSEgoEb3BlbhgJIAMoCVIEb3BlbhIdCgpoZWxkX3RvdGFsGAog"
        "ASgDUgloZWxkVG90YWwSHQoKb3Blbl90b3RhbBgLIAEoA1IJb3BlblRvdGFsEiEKDGZhaWxlZF90"
        "b3RhbBgMIAEoA1ILZmFpbGVkVG90YWwSHQoKbGFzdF9lcnJvchgNIAEoCVIJbGFzdEVycm9yEhQK"
        "BW5hbWVzGA4gAygJUgVuYW1lcxIQCgNqb2IYDyABKAlSA2pvYhIbCgl0aW1lZF9vdXQYECABKAhS"
        "CHRpbWVkT3V0EigKEGJ5dGVzX25vdF9jb3BpZWQYESABKANSDmJ5dGVzTm90Q29waWVkEh4KCnN1"
        "cGVyc2VkZWQYEiADKAlSCnN1cGVyc2VkZWQSKQoQc3VwZXJzZWRlZF90b3RhbBgTIAEoA1IPc3Vw"
        "ZXJzZWRlZFRvdGFsEigKEG5vZGVfbG9jYWxfdG90YWwYFCABKANSDm5vZGVMb2NhbFRvdGFsIl8K"
        "B0ZhaWx1cmUSEgoEcGF0aBgBIAEoCVIEcGF0aBISCgRraW5kGAIgASgNUgRraW5kEhYKBnJlYXNv"
        "bhgDIAEoCVIGcmVhc29uEhQKBWJ5dGVzGAQgASgDUgVieXRlcyIyCgpKb2JSZXF1ZXN0Eg4KAmlk"
        "GAEgASgJUgJpZBIUCgV3YXRjaBgCIAEoCFIFd2F0Y2giaQoISm9iUmVwbHkSEgoEanNvbhgBIAEo"
        "DFIEanNvbhIeCgpzdXBlcnNlZGVkGAIgAygJUgpzdXBlcnNlZGVkEikKEHN1cGVyc2VkZWRfdG90"
        "YWwYAyABKANSD3N1cGVyc2VkZWRUb3RhbCKPAQoITGlmZXRpbWUSEgoEanNvbhgBIAEoDFIEanNv"
        "bhI7CgpzdXBlcnNlZGVkGAIgAygLMhsuZm9yZWJheS52MS5TdXBlcnNlZGVkU3RlcHNSCnN1cGVy"
        "c2VkZWQSMgoHZHJvcHBlZBgDIAMoCzIYLmZvcmViYXkudjEuRHJvcHBlZEZpbGVzUgdkcm9wcGVk"
        "Ip0BCg9TdXBlcnNlZGVkU3RlcHMSFgoGYnVmZmVyGAEgASgJUgZidWZmZXISFAoFdG90YWwYAiAB"
        "KANSBXRvdGFsEhQKBWZpbGVzGAMgASgDUgVmaWxlcxIUCgVieXRlcxgEIAEoA1IFYnl0ZXMSMAoF"
        "c3RlcHMYBSADKAsyGi5mb3JlYmF5LnYxLlN1cGVyc2VkZWRTdGVwUgVzdGVwcyJgCg5TdXBlcnNl"
        "ZGVkU3RlcBISCgRzdGVwGAEgASgJUgRzdGVwEg4KAmJ5GAIgASgJUgJieRIUCgVmaWxlcxgDIAEo"
        "A1IFZmlsZXMSFAoFYnl0ZXMYBCABKANSBWJ5dGVzIk4KDERyb3BwZWRGaWxlcxISCgRub2RlGAEg"
        "ASgJUgRub2RlEhQKBWZpbGVzGAIgASgDUgVmaWxlcxIUCgVieXRlcxgDIAEoA1IFYnl0ZXMijgEK"
        "DExpZmV0aW1lT3BlbhISCgRqc29uGAEgASgMUgRqc29uEioKBmNyZWF0ZRgCIAMoCzISLmZvcmVi"
        "YXkudjEuQnVmZmVyUgZjcmVhdGUSFgoGYXR0YWNoGAMgASgIUgZhdHRhY2gSFAoFYmVnaW4YBCAB"
        "KAhSBWJlZ2luEhAKA3JhbhgFIAEoCFIDcmFuIk0KDUxpZmV0aW1lTGVhdmUSEAoDa2V5GAEgASgJ"
        "UgNrZXkSEgoEbm9kZRgCIAEoCVIEbm9kZRIWCgZmYWlsZWQYAyABKAhSBmZhaWxlZCJqCgtMaWZl"
        "dGltZUVuZBIQCgNrZXkYASABKAlSA2tleRIUCgVodXJyeRgCIAEoCFIFaHVycnkSFgoGZmFpbGVk"
        "GAMgASgIUgZmYWlsZWQSGwoJd2hlbl9sZWZ0GAQgASgIUgh3aGVuTGVmdCJOCgtMaWZldGltZUR1"
        "ZRIQCgNrZXkYASABKAlSA2tleRIVCgZkdWVfbnMYAiABKANSBWR1ZU5zEhYKBndhcm5lZBgDIAEo"
        "CFIGd2FybmVkIi8KCUxpZmV0aW1lcxIQCgNrZXkYASABKAlSA2tleRIQCgNqb2IYAiABKAlSA2pv"
        "YiLMAgoDVHhuEhYKBmJ1ZmZlchgBIAEoCVIGYnVmZmVyEg4KAmlkGAIgASgJUgJpZBIgCgtkZXN0"
        "aW5hdGlvbhgDIAEoCVILZGVzdGluYXRpb24SEAoDa2V5GAQgASgJUgNrZXkSFAoFc3RhdGUYBSAB"
        "KAlSBXN0YXRlEhIKBHBhdGgYBiABKAlSBHBhdGgSEAoDdWlkGAcgASgNUgN1aWQSEAoDZ2lkGAgg"
        "ASgNUgNnaWQSHQoKY3JlYXRlZF9ucxgJIAEoA1IJY3JlYXRlZE5zEhkKCGVuZGVkX25zGAogASgD"
        "UgdlbmRlZE5zEhkKCGxlYXNlX25zGAsgASgDUgdsZWFzZU5zEhgKB3JlcGxhY2UYDCADKAlSB3Jl"
        "cGxhY2USFgoGcmVhc29uGA0gASgJUgZyZWFzb24SFAoFdGFza3MYDiABKA1SBXRhc2tzIisKBFR4"
        "bnMSIwoEdHhucxgBIAMoCzIPLmZvcmViYXkudjEuVHhuUgR0eG5zInEKCFR4bkJlZ2luEhYKBmJ1"
        "ZmZlchgBIAEoCVIGYnVmZmVyEiAKC2Rlc3RpbmF0aW9uGAIgASgJUgtkZXN0aW5hdGlvbhIQCgNr"
        "ZXkYAyABKAlSA2tleRIZCghsZWFzZV9ucxgEIAEoA1IHbGVhc2VOcyIxCgdUeG5OYW1lEhYKBmJ1"
        "ZmZlchgBIAEoCVIGYnVmZmVyEg4KAmlkGAIgASgJUgJpZCJgCghUeG5BZG9wdBIWCgZidWZmZXIY"
        "ASABKAlSBmJ1ZmZlchIOCgJpZBgCIAEoCVICaWQSEgoEdGFzaxgDIAEoCVIEdGFzaxIYCgdhdHRl"
        "bXB0GAQgASgJUgdhdHRlbXB0IiQKClR4bkFkb3B0ZWQSFgoGd2lubmVyGAEgASgJUgZ3aW5uZXIi"
        "YQoJVHhuQ29tbWl0EhYKBmJ1ZmZlchgBIAEoCVIGYnVmZmVyEg4KAmlkGAIgASgJUgJpZBIYCgdy"
        "ZXBsYWNlGAMgAygJUgdyZXBsYWNlEhIKBHdhaXQYBCABKAhSBHdhaXQiLwoFTm9kZXMSJgoFbm9k"
        "ZXMYASADKAsyEC5mb3JlYmF5LnYxLk5vZGVSBW5vZGVzIs8DCgROb2RlEhIKBG5hbWUYASABKAlS"
        "BG5hbWUSGgoIaW5zdGFuY2UYAiABKARSCGluc3RhbmNlEhQKBXN0YXRlGAMgASgJUgVzdGF0ZRIY"
        "CgdzZXNzaW9uGAQgASgJUgdzZXNzaW9uEhYKBmZhYnJpYxgFIAEoCVIGZmFicmljEhQKBWFkbWlu"
        "GAYgASgJUgVhZG1pbhIfCgttaW5fdmVyc2lvbhgHIAEoDVIKbWluVmVyc2lvbhIfCgttYXhfdmVy"
        "c2lvbhgIIAEoDVIKbWF4VmVyc2lvbhIWCgZzZXJ2ZXIYCSABKAlSBnNlcnZlchIWCgZtZW1vcnkY"
        "CiABKANSBm1lbW9yeRIfCgttZW1vcnlfZnJlZRgLIAEoA1IKbWVtb3J5RnJlZRIhCgxtZW1vcnlf"
        "ZGlydHkYDCABKANSC21lbW9yeURpcnR5EhIKBGRpc2sYDSABKANSBGRpc2sSGwoJZGlza19mcmVl"
        "GA4gASgDUghkaXNrRnJlZRIdCgpkaXNrX2RpcnR5GA8gASgDUglkaXNrRGlydHkSGQoIc2luY2Vf"
        "bnMYECABKANSB3NpbmNlTnMSGAoHcmVmdXNlZBgRIAEoCVIHcmVmdXNlZCIeCghOb2RlTmFtZRIS"
        "CgRuYW1lGAEgASgJUgRuYW1lIkUKCU5vZGVEcmFpbhISCgRuYW1lGAEgASgJUgRuYW1lEhQKBWxv"
        "Y2FsGAIgASgIUgVsb2NhbBIOCgJ0bxgDIAMoCVICdG8ikwEKDU5vZGVGb3Jnb3R0ZW4SJQoEbG9z"
        "dBgBIAMoCzIRLmZvcmViYXkudjEuRW50cnlSBGxvc3QSHQoKbG9zdF90b3RhbBgCIAEoA1IJbG9z"
        "dFRvdGFsEh0KCmxvc3RfYnl0ZXMYAyABKANSCWxvc3RCeXRlcxIdCgprZXB0X3RvdGFsGAQgASgD"
        "UglrZXB0VG90YWwiRwoMVG9rZW5SZXF1ZXN0EhYKBmJ1ZmZlchgBIAEoCVIGYnVmZmVyEh8KC2xp"
        "ZmV0aW1lX25zGAIgASgDUgpsaWZldGltZU5zIjwKBVRva2VuEhQKBXRva2VuGAEgASgMUgV0b2tl"
        "bhIdCgpleHBpcmVzX25zGAIgASgDUglleHBpcmVzTnMiTAoESG9sZBIWCgZidWZmZXIYASABKAlS"
        "BmJ1ZmZlchIUCgVwYXRocxgCIAMoCVIFcGF0aHMSFgoGZnJlZXplGAMgASgIUgZmcmVlemUikgEK"
        "BFRha2USFgoGYnVmZmVyGAEgASgJUgZidWZmZXISEAoDZGlyGAIgASgEUgNkaXISEgoEbmFtZRgD"
        "IAEoCVIEbmFtZRISCgRmaWxlGAQgASgEUgRmaWxlEh4KCmdlbmVyYXRpb24YBSABKARSCmdlbmVy"
        "YXRpb24SGAoHcmVwbGljYRgGIAEoCFIHcmVwbGljYSJJCgdSZWNoZWNrEhYKBmJ1ZmZlchgBIAEo"
        "CVIGYnVmZmVyEhIKBHBhdGgYAiABKAlSBHBhdGgSEgoEdHJlZRgDIAEoCFIEdHJlZSIzCgVOYW1l"
        "cxIWCgZidWZmZXIYASABKAlSBmJ1ZmZlchISCgRjYWxsGAIgASgMUgRjYWxsIiQKCk5hbWVzUmVw"
        "bHkSFgoGYW5zd2VyGAEgASgMUgZhbnN3ZXIivwEKC1BsYWNlUmVuYW1lEhYKBmJ1ZmZlchgBIAEo"
        "CVIGYnVmZmVyEhkKCGZyb21fZGlyGAIgASgEUgdmcm9tRGlyEhsKCWZyb21fbmFtZRgDIAEoCVII"
        "ZnJvbU5hbWUSFQoGdG9fZGlyGAQgASgEUgV0b0RpchIXCgd0b19uYW1lGAUgASgJUgZ0b05hbWUS"
        "FgoGZXhwZWN0GAYgASgEUgZleHBlY3QSGAoHcmVwbGFjZRgHIAEoCFIHcmVwbGFjZSKXAQoLUGxh"
        "Y2VSZW1vdmUSFgoGYnVmZmVyGAEgASgJUgZidWZmZXISEAoDZGlyGAIgASgEUgNkaXISEgoEbmFt"
        "ZRgDIAEoCVIEbmFtZRIWCgZleHBlY3QYBCABKARSBmV4cGVjdBIeCgpnZW5lcmF0aW9uGAUgASgE"
        "UgpnZW5lcmF0aW9uEhIKBHBhdGgYBiABKAlSBHBhdGgiVQoHRGlzY2FyZBIWCgZidWZmZXIYASAB"
        "KAlSBmJ1ZmZlchISCgRmaWxlGAIgASgEUgRmaWxlEh4KCmdlbmVyYXRpb24YAyABKARSCmdlbmVy"
        "YXRpb24i4AEKCVJlcGxpY2F0ZRIWCgZidWZmZXIYASABKAlSBmJ1ZmZlchISCgRmaWxlGAIgASgE"
        "UgRmaWxlEh4KCmdlbmVyYXRpb24YAyABKARSCmdlbmVyYXRpb24SFAoFd2hvbGUYBCABKAhSBXdo"
        "b2xlEi8KB2V4dGVudHMYBSADKAsyFS5mb3JlYmF5LnYxLk5ld0V4dGVudFIHZXh0ZW50cxIUCgVw"
        "YXJ0cxgGIAEoBFIFcGFydHMSFgoGYmVmb3JlGAcgASgNUgZiZWZvcmUSEgoEbW9yZRgIIAEoCFIE"
        "bW9yZSqjCQoEVHlwZRIUChBUWVBFX1VOU1BFQ0lGSUVEEAASDgoKVFlQRV9IRUxMTxABEg8KC1RZ"
        "UEVfQ0FOQ0VMEAISDgoKVFlQRV9QUk9WRRAFEg4KClRZUEVfUFVMU0UQBhIPCgtUWVBFX1NUQVRV"
        "UxADEhIKDlRZUEVfU1VCU0NSSUJFEAQSFgoSVFlQRV9CVUZGRVJfQ1JFQVRFEAoSEwoPVFlQRV9C"
        "VUZGRVJfR0VUEAsSFAoQVFlQRV9CVUZGRVJfTElTVBAMEhcKE1RZUEVfQlVGRkVSX0RFU1RST1kQ"
        "DRIXChNUWVBFX0JVRkZFUl9SRUJVSUxEEA4SDQoJVFlQRV9TVEFUEBQSDQoJVFlQRV9MSVNUEBUS"
        "DgoKVFlQRV9NS0RJUhAWEg8KC1RZUEVfUkVOQU1FEBcSDwoLVFlQRV9SRU1PVkUQGBIQCgxUWVBF"
        "X1NFVEFUVFIQGRINCglUWVBFX0xPU1QQGhIOCgpUWVBFX01LTk9EEBsSEgoOVFlQRV9TRVRfWEFU"
        "VFIQHBIPCgtUWVBFX1hBVFRSUxAdEg0KCVRZUEVfT1BFThAeEg8KC1RZUEVfQ09NTUlUEB8SEAoM"
        "VFlQRV9FWFRFTlRTECASDgoKVFlQRV9VTlBJThAhEg4KClRZUEVfQ0xPU0UQIhIOCgpUWVBFX0xF"
        "QVNFECMSDwoLVFlQRV9SRVRVUk4QJBIOCgpUWVBFX0RSQUlOECgSEQoNVFlQRV9TVEFHRV9JThAp"
        "EhIKDlRZUEVfU1RBR0VfT1VUECoSDwoLVFlQRV9WRVJJRlkQKxIQCgxUWVBFX1JFQ0VJUFQQLBIO"
        "CgpUWVBFX05PREVTEDISEwoPVFlQRV9OT0RFX0RSQUlOEDMSFQoRVFlQRV9OT0RFX1VORFJBSU4Q"
        "MBIUChBUWVBFX05PREVfRk9SR0VUEDQSEgoOVFlQRV9OT0RFX0xPU1MQLxIOCgpUWVBFX1RPS0VO"
        "EDUSDQoJVFlQRV9KT0JTEDYSDAoIVFlQRV9KT0IQNxITCg9UWVBFX0pPQl9DQU5DRUwQOBIWChJU"
        "WVBFX0xJRkVUSU1FX09QRU4QORIXChNUWVBFX0xJRkVUSU1FX0xFQVZFEDoSFQoRVFlQRV9MSUZF"
        "VElNRV9FTkQQOxIVChFUWVBFX0xJRkVUSU1FX0RVRRAuEhIKDlRZUEVfTElGRVRJTUVTEC0SEgoO"
        "VFlQRV9UWE5fQkVHSU4QRhISCg5UWVBFX1RYTl9BRE9QVBBHEhMKD1RZUEVfVFhOX0NPTU1JVBBI"
        "EhIKDlRZUEVfVFhOX0FCT1JUEEkSEgoOVFlQRV9UWE5fUkVORVcQShIQCgxUWVBFX1RYTl9HRVQQ"
        "SxIRCg1UWVBFX1RYTl9MSVNUEEwSDQoJVFlQRV9IT0xEEDwSDQoJVFlQRV9UQUtFED0SEAoMVFlQ"
        "RV9ESVNDQVJEED4SEgoOVFlQRV9SRVBMSUNBVEUQPxIQCgxUWVBFX1JFQ0hFQ0sQQBIVChFUWVBF"
        "X1BMQUNFX1JFTkFNRRBBEhUKEVRZUEVfUExBQ0VfUkVNT1ZFEEISDgoKVFlQRV9OQU1FUxBDQhda"
        "FWZvcmViYXkvaW50ZXJuYWwvd2lyZWIGcHJvdG8z"
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
Discard = _classes["forebay.v1.Discard"]
Replicate = _classes["forebay.v1.Replicate"]
