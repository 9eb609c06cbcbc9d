# Generated from internal/wire/forebay.proto by make generate. Not to be edited.
import base64

from google.protobuf import descriptor_pool, message_factory

_pool = descriptor_pool.DescriptorPool()
_pool.AddSerializedFile(
    base64.b64decode(
        "ChtpbnRlcm5hbC93aXJlL2ZvcmViYXkucHJvdG8SCmZvcmViYXkudjEiBwoFRW1wdHkirwIKBUhl"
        "bGxvEh8KC21pbl92ZXJzaW9uGAEgASgNUgptaW5WZXJzaW9uEh8KC21heF92ZXJzaW9uGAIgASgN"
        "UgptYXhWZXJzaW9uEiIKDGNhcGFiaWxpdGllcxgDIAMoCVIMY2FwYWJpbGl0aWVzEhYKBmNsaWVu"
        "dBgEIAEoCVIGY2xpZW50EhAKA3BpZBgFIAEoDVIDcGlkEhAKA3VpZBgGIAEoDVIDdWlkEhAKA2dp"
        "ZBgHIAEoDVIDZ2lkEhQKBW5vbmNlGAggASgMUgVub25jZRISCgRub2RlGAkgASgJUgRub2RlEhoK"
        "CGluc3RhbmNlGAogASgEUghpbnN0YW5jZRIWCgZzeXN0ZW0YCyABKAhSBnN5c3RlbRIUCgV0b2tl"
        "bhgMIAEoDFIFdG9rZW4iNwoJQ2hhbGxlbmdlEhQKBW5vbmNlGAEgASgMUgVub25jZRIUCgVwcm9v"
        "ZhgCIAEoDFIFcHJvb2YiHQoFUHJvdmUSFAoFcHJvb2YYASABKAxSBXByb29mIhsKBVB1bHNlEhIK"
        "BGhlbGQYASABKA1SBGhlbGQi2wQKB1dlbGNvbWUSGAoHdmVyc2lvbhgBIAEoDVIHdmVyc2lvbhIi"
        "CgxjYXBhYmlsaXRpZXMYAiADKAlSDGNhcGFiaWxpdGllcxISCgRub2RlGAMgASgJUgRub2RlEhoK"
        "CGluc3RhbmNlGAQgASgEUghpbnN0YW5jZRIUCgVlcG9jaBgFIAEoBFIFZXBvY2gSFgoGc2VydmVy"
        "GAYgASgJUgZzZXJ2ZXISHwoLbWFwX3JlZ2lvbnMYByABKAhSCm1hcFJlZ2lvbnMSHwoLbWF4X21l"
        "c3NhZ2UYCCABKA1SCm1heE1lc3NhZ2USGQoIbWF4X2RhdGEYCSABKA1SB21heERhdGESIgoNbWF4"
        "X2luX2ZsaWdodBgKIAEoDVILbWF4SW5GbGlnaHQSKQoQaW5saW5lX3RocmVzaG9sZBgLIAEoDVIP"
        "aW5saW5lVGhyZXNob2xkEhAKA3VpZBgMIAEoDVIDdWlkEhAKA2dpZBgNIAEoDVIDZ2lkEiEKDGRh"
        "dGFfYWRkcmVzcxgOIAEoCVILZGF0YUFkZHJlc3MSGAoHc2Vzc2lvbhgPIAEoBFIHc2Vzc2lvbhIf"
        "CgtkYXRhX3RpY2tldBgQIAEoDFIKZGF0YVRpY2tldBIfCgtvZmlfYWRkcmVzcxgRIAEoCVIKb2Zp"
        "QWRkcmVzcxIhCgxvZmlfcHJvdmlkZXIYEiABKAlSC29maVByb3ZpZGVyEiEKDG9maV9lbmRwb2lu"
        "dBgTIAEoCVILb2ZpRW5kcG9pbnQSHwoLb2ZpX25ldHdvcmsYFCABKAlSCm9maU5ldHdvcmsinQEK"
        "BUVycm9yEhIKBGtpbmQYASABKA1SBGtpbmQSDgoCb3AYAiABKAlSAm9wEhIKBHBhdGgYAyABKAlS"
        "BHBhdGgSEgoEbm9kZRgEIAEoCVIEbm9kZRIWCgZyZWFzb24YBSABKAlSBnJlYXNvbhIWCgZyZW1l"
        "ZHkYBiABKAlSBnJlbWVkeRIYCgdvdXRjb21lGAcgASgNUgdvdXRjb21lIjwKBkNhbmNlbBIYCgdy"
        "ZXF1ZXN0GAEgASgEUgdyZXF1ZXN0EhgKB292ZXJkdWUYAiABKAhSB292ZXJkdWUiVQoNU3RhdHVz"
        "UmVxdWVzdBIWCgZidWZmZXIYASABKAlSBmJ1ZmZlchISCgRub2RlGAIgASgJUgRub2RlEhgKB2Ns"
        "dXN0ZXIYAyABKAhSB2NsdXN0ZXIiNQoLU3RhdHVzUmVwbHkSEgoEanNvbhgBIAEoDFIEanNvbhIS"
        "CgRub2RlGAIgASgMUgRub2RlIiMKCVN1YnNjcmliZRIWCgZidWZmZXIYASABKAlSBmJ1ZmZlciIb"
        "CgVFdmVudBISCgRqc29uGAEgASgMUgRqc29uIiAKCkJ1ZmZlck5hbWUSEgoEbmFtZRgBIAEoCVIE"
        "bmFtZSI9Cg1CdWZmZXJEZXN0cm95EhIKBG5hbWUYASABKAlSBG5hbWUSGAoHZGlzY2FyZBgCIAEo"
        "CFIHZGlzY2FyZCKvAgoNQnVmZmVyUmVidWlsdBIWCgZzZXJ2ZWQYASABKAhSBnNlcnZlZBIUCgVm"
        "aWxlcxgCIAEoA1IFZmlsZXMSIAoLZGlyZWN0b3JpZXMYAyABKANSC2RpcmVjdG9yaWVzEhIKBHJl"
        "YWQYCSABKANSBHJlYWQSFAoFYXNpZGUYBCABKANSBWFzaWRlEhIKBGtlcHQYBSABKANSBGtlcHQS"
        "GQoIb25fc3RvcmUYBiABKANSB29uU3RvcmUSEgoEbG9zdBgHIAEoA1IEbG9zdBIUCgVsaW5rcxgK"
        "IAEoA1IFbGlua3MSHAoJY29tbWl0dGVkGAsgASgDUgljb21taXR0ZWQSLQoFZm91bmQYCCADKAsy"
        "Fy5mb3JlYmF5LnYxLlJlYnVpbHRGaWxlUgVmb3VuZCJnCgtSZWJ1aWx0RmlsZRISCgRwYXRoGAEg"
        "ASgJUgRwYXRoEhQKBWJ5dGVzGAIgASgDUgVieXRlcxIWCgZiZWNhbWUYAyABKAlSBmJlY2FtZRIW"
        "CgZyZWFzb24YBCABKAlSBnJlYXNvbiI3CgdCdWZmZXJzEiwKB2J1ZmZlcnMYASADKAsyEi5mb3Jl"
        "YmF5LnYxLkJ1ZmZlclIHYnVmZmVycyL9BAoGQnVmZmVyEhIKBG5hbWUYASABKAlSBG5hbWUSEAoD"
        "dWlkGAIgASgNUgN1aWQSEAoDZ2lkGAMgASgNUgNnaWQSEgoEbW9kZRgEIAEoDVIEbW9kZRIaCghj"
        "YXBhY2l0eRgFIAEoA1IIY2FwYWNpdHkSGAoHYmFja2luZxgGIAEoCVIHYmFja2luZxIeCgpkdXJh"
        "YmlsaXR5GAcgASgJUgpkdXJhYmlsaXR5EhQKBWNvZGVjGAggASgJUgVjb2RlYxISCgRrZWVwGAkg"
        "AygJUgRrZWVwEh8KC2ZsdXNoX2xpbWl0GAogASgDUgpmbHVzaExpbWl0EiAKDGRpcnR5X2FnZV9u"
        "cxgLIAEoA1IKZGlydHlBZ2VOcxIXCgdub193YWl0GAwgASgIUgZub1dhaXQSGAoHcmVjZWlwdBgN"
        "IAEoCFIHcmVjZWlwdBIQCgNqb2IYDiABKAlSA2pvYhIdCgpjcmVhdGVkX25zGA8gASgDUgljcmVh"
        "dGVkTnMSFAoFc3RhdGUYECABKAlSBXN0YXRlEiEKDGtlZXBfZGVmYXVsdBgRIAEoCFILa2VlcERl"
        "ZmF1bHQSGgoIcmVwbGljYXMYEiABKA1SCHJlcGxpY2FzEioKBXRpZXJzGBMgAygLMhQuZm9yZWJh"
        "eS52MS5UaWVyUnVsZVIFdGllcnMSGgoIZXhpc3RpbmcYFCABKAlSCGV4aXN0aW5nEhQKBWZvdW5k"
        "GBUgASgJUgVmb3VuZBIfCgtmb3VuZF90b3RhbBgWIAEoDVIKZm91bmRUb3RhbBIWCgZzaGFyZWQY"
        "FyABKAhSBnNoYXJlZBIUCgVmbHVzaBgYIAMoCVIFZmx1c2giOAoIVGllclJ1bGUSGAoHcGF0dGVy"
        "bhgBIAEoCVIHcGF0dGVybhISCgR0aWVyGAIgASgNUgR0aWVyIq8DCgVFbnRyeRISCgRuYW1lGAEg"
        "ASgJUgRuYW1lEhIKBHR5cGUYAiABKA1SBHR5cGUSEgoEZmlsZRgDIAEoBFIEZmlsZRIeCgpnZW5l"
        "cmF0aW9uGAQgASgEUgpnZW5lcmF0aW9uEhIKBHNpemUYBSABKANSBHNpemUSGgoIY2hlY2tzdW0Y"
        "BiABKARSCGNoZWNrc3VtEhIKBG9wZW4YByABKAhSBG9wZW4SGAoHaG9sZGVycxgIIAMoCVIHaG9s"
        "ZGVycxISCgRtb2RlGAkgASgNUgRtb2RlEhAKA3VpZBgKIAEoDVIDdWlkEhAKA2dpZBgLIAEoDVID"
        "Z2lkEhkKCG10aW1lX25zGAwgASgDUgdtdGltZU5zEhQKBXN0YXRlGA0gASgNUgVzdGF0ZRIWCgZy"
        "ZWFzb24YDiABKAlSBnJlYXNvbhIQCgNkaXIYDyABKARSA2RpchItCgdmbHVzaGVkGBAgASgLMhMu"
        "Zm9yZWJheS52MS5GbHVzaGVkUgdmbHVzaGVkEhIKBHBhdGgYESABKAlSBHBhdGgSFgoGdGFyZ2V0"
        "GBIgASgMUgZ0YXJnZXQiNgoHRW50cmllcxIrCgdlbnRyaWVzGAEgAygLMhEuZm9yZWJheS52MS5F"
        "bnRyeVIHZW50cmllcyLAAQoHRmx1c2hlZBIeCgpnZW5lcmF0aW9uGAEgASgEUgpnZW5lcmF0aW9u"
        "EhIKBGV0YWcYAiABKAlSBGV0YWcSEgoEc2l6ZRgDIAEoA1IEc2l6ZRIaCghjaGVja3N1bRgEIAEo"
        "BFIIY2hlY2tzdW0SFAoFY29kZWMYBSABKAlSBWNvZGVjEhMKBWF0X25zGAYgASgDUgRhdE5zEg4K"
        "AmJ5GAcgASgJUgJieRIWCgZsYXlvdXQYCCABKAlSBmxheW91dCI5CgtQYXRoUmVxdWVzdBIWCgZi"
        "dWZmZXIYASABKAlSBmJ1ZmZlchISCgRwYXRoGAIgASgJUgRwYXRoImUKC0xpc3RSZXF1ZXN0EhYK"
        "BmJ1ZmZlchgBIAEoCVIGYnVmZmVyEhIKBHBhdGgYAiABKAlSBHBhdGgSFAoFYWZ0ZXIYAyABKAlS"
        "BWFmdGVyEhQKBWxpbWl0GAQgASgNUgVsaW1pdCJMCglMaXN0UmVwbHkSKwoHZW50cmllcxgBIAMo"
        "CzIRLmZvcmViYXkudjEuRW50cnlSB2VudHJpZXMSEgoEbW9yZRgCIAEoCFIEbW9yZSJhCgVNa2Rp"
        "chIWCgZidWZmZXIYASABKAlSBmJ1ZmZlchISCgRwYXRoGAIgASgJUgRwYXRoEhIKBG1vZGUYAyAB"
        "KA1SBG1vZGUSGAoHcGFyZW50cxgEIAEoCFIHcGFyZW50cyJzCgVNa25vZBIWCgZidWZmZXIYASAB"
        "KAlSBmJ1ZmZlchISCgRwYXRoGAIgASgJUgRwYXRoEhIKBHR5cGUYAyABKA1SBHR5cGUSFgoGdGFy"
        "Z2V0GAQgASgMUgZ0YXJnZXQSEgoEbW9kZRgFIAEoDVIEbW9kZSJjCgZSZW5hbWUSFgoGYnVmZmVy"
        "GAEgASgJUgZidWZmZXISEgoEZnJvbRgCIAEoCVIEZnJvbRIOCgJ0bxgDIAEoCVICdG8SHQoKbm9f"
        "cmVwbGFjZRgEIAEoCFIJbm9SZXBsYWNlImYKBlJlbW92ZRIWCgZidWZmZXIYASABKAlSBmJ1ZmZl"
        "chISCgRwYXRoGAIgASgJUgRwYXRoEhwKCXJlY3Vyc2l2ZRgDIAEoCFIJcmVjdXJzaXZlEhIKBHBh"
        "Z2UYBCABKANSBHBhZ2UiVQoHUmVtb3ZlZBIUCgVmaWxlcxgBIAEoA1IFZmlsZXMSIAoLZGlyZWN0"
        "b3JpZXMYAiABKANSC2RpcmVjdG9yaWVzEhIKBG1vcmUYAyABKAhSBG1vcmUiwgEKB1NldEF0dHIS"
        "FgoGYnVmZmVyGAEgASgJUgZidWZmZXISEgoEcGF0aBgCIAEoCVIEcGF0aBIXCgRtb2RlGAMgASgN"
        "SABSBG1vZGWIAQESFQoDdWlkGAQgASgNSAFSA3VpZIgBARIVCgNnaWQYBSABKA1IAlIDZ2lkiAEB"
        "Eh4KCG10aW1lX25zGAYgASgDSANSB210aW1lTnOIAQFCBwoFX21vZGVCBgoEX3VpZEIGCgRfZ2lk"
        "QgsKCV9tdGltZV9ucyLCAwoET3BlbhIWCgZoYW5kbGUYASABKARSBmhhbmRsZRIWCgZidWZmZXIY"
        "AiABKAlSBmJ1ZmZlchISCgRwYXRoGAMgASgJUgRwYXRoEhQKBXdyaXRlGAQgASgIUgV3cml0ZRIW"
        "CgZjcmVhdGUYBSABKAhSBmNyZWF0ZRIcCglleGNsdXNpdmUYBiABKAhSCWV4Y2x1c2l2ZRIaCgh0"
        "cnVuY2F0ZRgHIAEoCFIIdHJ1bmNhdGUSEgoEbW9kZRgIIAEoDVIEbW9kZRIfCgtyZXN1bWVfZmls"
        "ZRgJIAEoBFIKcmVzdW1lRmlsZRIrChFyZXN1bWVfZ2VuZXJhdGlvbhgKIAEoBFIQcmVzdW1lR2Vu"
        "ZXJhdGlvbhIpChByZXN1bWVfY29tbWl0dGVkGAsgASgIUg9yZXN1bWVDb21taXR0ZWQSEgoEd2Fu"
        "dBgMIAEoDVIEd2FudBISCgRmaWxlGA0gASgEUgRmaWxlEh4KCmdlbmVyYXRpb24YDiABKARSCmdl"
        "bmVyYXRpb24SIwoNcmVzdW1lX3dyaXRlchgPIAEoBFIMcmVzdW1lV3JpdGVyEhQKBWZlbmNlGBQg"
        "ASgIUgVmZW5jZSLZAQoGT3BlbmVkEicKBWVudHJ5GAEgASgLMhEuZm9yZWJheS52MS5FbnRyeVIF"
        "ZW50cnkSHgoKZ2VuZXJhdGlvbhgCIAEoBFIKZ2VuZXJhdGlvbhItCgdleHRlbnRzGAMgASgLMhMu"
        "Zm9yZWJheS52MS5FeHRlbnRzUgdleHRlbnRzEiUKDmFscmVhZHlfY2xvc2VkGAQgASgIUg1hbHJl"
        "YWR5Q2xvc2VkEhwKCWNvbW1pdHRlZBgFIAEoBFIJY29tbWl0dGVkEhIKBHRpZXIYBiABKA1SBHRp"
        "ZXIilAEKDExlYXNlUmVxdWVzdBIWCgZidWZmZXIYASABKAlSBmJ1ZmZlchIUCgVieXRlcxgCIAEo"
        "A1IFYnl0ZXMSEgoEZml0cxgDIAEoA1IEZml0cxISCgR0aWVyGAQgASgNUgR0aWVyEhQKBWZpbGVz"
        "GAUgASgNUgVmaWxlcxIYCgdjb21taXRzGAYgASgIUgdjb21taXRzIs0BCgVMZWFzZRIOCgJpZBgB"
        "IAEoBFICaWQSKgoGcmVnaW9uGAIgASgLMhIuZm9yZWJheS52MS5SZWdpb25SBnJlZ2lvbhIWCgZv"
        "ZmZzZXQYAyABKANSBm9mZnNldBIWCgZsZW5ndGgYBCABKANSBmxlbmd0aBIdCgpkYXRhX3N0YXJ0"
        "GAUgASgDUglkYXRhU3RhcnQSIQoMcmVjb3JkX2Zsb29yGAYgASgDUgtyZWNvcmRGbG9vchIWCgZ0"
        "aWVyZWQYByABKAhSBnRpZXJlZCIdCgtSZXR1cm5MZWFzZRIOCgJpZBgBIAEoBFICaWQiVgoGUmVn"
        "aW9uEg4KAmlkGAEgASgEUgJpZBISCgRwYXRoGAIgASgJUgRwYXRoEhYKBmxlbmd0aBgDIAEoA1IG"
        "bGVuZ3RoEhAKA2tleRgEIAEoDFIDa2V5IsgBCgZDb21taXQSFgoGaGFuZGxlGAEgASgEUgZoYW5k"
        "bGUSLwoHZXh0ZW50cxgCIAMoCzIVLmZvcmViYXkudjEuTmV3RXh0ZW50UgdleHRlbnRzEhQKBWNs"
        "b3NlGAMgASgIUgVjbG9zZRIUCgVhYm9ydBgEIAEoCFIFYWJvcnQSGQoIbXRpbWVfbnMYBSABKANS"
        "B210aW1lTnMSFgoGd3JpdGVyGAYgASgEUgZ3cml0ZXISFgoGbnVtYmVyGAcgASgEUgZudW1iZXIi"
        "nQEKCU5ld0V4dGVudBIfCgtmaWxlX29mZnNldBgBIAEoA1IKZmlsZU9mZnNldBIWCgZsZW5ndGgY"
        "AiABKANSBmxlbmd0aBIaCghjaGVja3N1bRgDIAEoBFIIY2hlY2tzdW0SFAoFbGVhc2UYBCABKARS"
        "BWxlYXNlEiUKDnNlZ21lbnRfb2Zmc2V0GAUgASgDUg1zZWdtZW50T2Zmc2V0IlMKCUNvbW1pdHRl"
        "ZBISCgRzaXplGAEgASgDUgRzaXplEh4KCmdlbmVyYXRpb24YAiABKARSCmdlbmVyYXRpb24SEgoE"
        "ZmlsZRgDIAEoBFIEZmlsZSKIAQoORXh0ZW50c1JlcXVlc3QSFgoGaGFuZGxlGAEgASgEUgZoYW5k"
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
        "cmlmeRIQCgN1cmwYASABKAlSA3VybBISCgRkZWVwGAIgASgIUgRkZWVwItIECghQcm9ncmVzcxIf"
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
        "ZXJzZWRlZFRvdGFsIl8KB0ZhaWx1cmUSEgoEcGF0aBgBIAEoCVIEcGF0aBISCgRraW5kGAIgASgN"
        "UgRraW5kEhYKBnJlYXNvbhgDIAEoCVIGcmVhc29uEhQKBWJ5dGVzGAQgASgDUgVieXRlcyIyCgpK"
        "b2JSZXF1ZXN0Eg4KAmlkGAEgASgJUgJpZBIUCgV3YXRjaBgCIAEoCFIFd2F0Y2giaQoISm9iUmVw"
        "bHkSEgoEanNvbhgBIAEoDFIEanNvbhIeCgpzdXBlcnNlZGVkGAIgAygJUgpzdXBlcnNlZGVkEikK"
        "EHN1cGVyc2VkZWRfdG90YWwYAyABKANSD3N1cGVyc2VkZWRUb3RhbCKPAQoITGlmZXRpbWUSEgoE"
        "anNvbhgBIAEoDFIEanNvbhI7CgpzdXBlcnNlZGVkGAIgAygLMhsuZm9yZWJheS52MS5TdXBlcnNl"
        "ZGVkU3RlcHNSCnN1cGVyc2VkZWQSMgoHZHJvcHBlZBgDIAMoCzIYLmZvcmViYXkudjEuRHJvcHBl"
        "ZEZpbGVzUgdkcm9wcGVkIp0BCg9TdXBlcnNlZGVkU3RlcHMSFgoGYnVmZmVyGAEgASgJUgZidWZm"
        "ZXISFAoFdG90YWwYAiABKANSBXRvdGFsEhQKBWZpbGVzGAMgASgDUgVmaWxlcxIUCgVieXRlcxgE"
        "IAEoA1IFYnl0ZXMSMAoFc3RlcHMYBSADKAsyGi5mb3JlYmF5LnYxLlN1cGVyc2VkZWRTdGVwUgVz"
        "dGVwcyJgCg5TdXBlcnNlZGVkU3RlcBISCgRzdGVwGAEgASgJUgRzdGVwEg4KAmJ5GAIgASgJUgJi"
        "eRIUCgVmaWxlcxgDIAEoA1IFZmlsZXMSFAoFYnl0ZXMYBCABKANSBWJ5dGVzIk4KDERyb3BwZWRG"
        "aWxlcxISCgRub2RlGAEgASgJUgRub2RlEhQKBWZpbGVzGAIgASgDUgVmaWxlcxIUCgVieXRlcxgD"
        "IAEoA1IFYnl0ZXMijgEKDExpZmV0aW1lT3BlbhISCgRqc29uGAEgASgMUgRqc29uEioKBmNyZWF0"
        "ZRgCIAMoCzISLmZvcmViYXkudjEuQnVmZmVyUgZjcmVhdGUSFgoGYXR0YWNoGAMgASgIUgZhdHRh"
        "Y2gSFAoFYmVnaW4YBCABKAhSBWJlZ2luEhAKA3JhbhgFIAEoCFIDcmFuIk0KDUxpZmV0aW1lTGVh"
        "dmUSEAoDa2V5GAEgASgJUgNrZXkSEgoEbm9kZRgCIAEoCVIEbm9kZRIWCgZmYWlsZWQYAyABKAhS"
        "BmZhaWxlZCJqCgtMaWZldGltZUVuZBIQCgNrZXkYASABKAlSA2tleRIUCgVodXJyeRgCIAEoCFIF"
        "aHVycnkSFgoGZmFpbGVkGAMgASgIUgZmYWlsZWQSGwoJd2hlbl9sZWZ0GAQgASgIUgh3aGVuTGVm"
        "dCJOCgtMaWZldGltZUR1ZRIQCgNrZXkYASABKAlSA2tleRIVCgZkdWVfbnMYAiABKANSBWR1ZU5z"
        "EhYKBndhcm5lZBgDIAEoCFIGd2FybmVkIi8KCUxpZmV0aW1lcxIQCgNrZXkYASABKAlSA2tleRIQ"
        "CgNqb2IYAiABKAlSA2pvYiLMAgoDVHhuEhYKBmJ1ZmZlchgBIAEoCVIGYnVmZmVyEg4KAmlkGAIg"
        "ASgJUgJpZBIgCgtkZXN0aW5hdGlvbhgDIAEoCVILZGVzdGluYXRpb24SEAoDa2V5GAQgASgJUgNr"
        "ZXkSFAoFc3RhdGUYBSABKAlSBXN0YXRlEhIKBHBhdGgYBiABKAlSBHBhdGgSEAoDdWlkGAcgASgN"
        "UgN1aWQSEAoDZ2lkGAggASgNUgNnaWQSHQoKY3JlYXRlZF9ucxgJIAEoA1IJY3JlYXRlZE5zEhkK"
        "CGVuZGVkX25zGAogASgDUgdlbmRlZE5zEhkKCGxlYXNlX25zGAsgASgDUgdsZWFzZU5zEhgKB3Jl"
        "cGxhY2UYDCADKAlSB3JlcGxhY2USFgoGcmVhc29uGA0gASgJUgZyZWFzb24SFAoFdGFza3MYDiAB"
        "KA1SBXRhc2tzIisKBFR4bnMSIwoEdHhucxgBIAMoCzIPLmZvcmViYXkudjEuVHhuUgR0eG5zInEK"
        "CFR4bkJlZ2luEhYKBmJ1ZmZlchgBIAEoCVIGYnVmZmVyEiAKC2Rlc3RpbmF0aW9uGAIgASgJUgtk"
        "ZXN0aW5hdGlvbhIQCgNrZXkYAyABKAlSA2tleRIZCghsZWFzZV9ucxgEIAEoA1IHbGVhc2VOcyIx"
        "CgdUeG5OYW1lEhYKBmJ1ZmZlchgBIAEoCVIGYnVmZmVyEg4KAmlkGAIgASgJUgJpZCJgCghUeG5B"
        "ZG9wdBIWCgZidWZmZXIYASABKAlSBmJ1ZmZlchIOCgJpZBgCIAEoCVICaWQSEgoEdGFzaxgDIAEo"
        "CVIEdGFzaxIYCgdhdHRlbXB0GAQgASgJUgdhdHRlbXB0IiQKClR4bkFkb3B0ZWQSFgoGd2lubmVy"
        "GAEgASgJUgZ3aW5uZXIiYQoJVHhuQ29tbWl0EhYKBmJ1ZmZlchgBIAEoCVIGYnVmZmVyEg4KAmlk"
        "GAIgASgJUgJpZBIYCgdyZXBsYWNlGAMgAygJUgdyZXBsYWNlEhIKBHdhaXQYBCABKAhSBHdhaXQi"
        "LwoFTm9kZXMSJgoFbm9kZXMYASADKAsyEC5mb3JlYmF5LnYxLk5vZGVSBW5vZGVzIs8DCgROb2Rl"
        "EhIKBG5hbWUYASABKAlSBG5hbWUSGgoIaW5zdGFuY2UYAiABKARSCGluc3RhbmNlEhQKBXN0YXRl"
        "GAMgASgJUgVzdGF0ZRIYCgdzZXNzaW9uGAQgASgJUgdzZXNzaW9uEhYKBmZhYnJpYxgFIAEoCVIG"
        "ZmFicmljEhQKBWFkbWluGAYgASgJUgVhZG1pbhIfCgttaW5fdmVyc2lvbhgHIAEoDVIKbWluVmVy"
        "c2lvbhIfCgttYXhfdmVyc2lvbhgIIAEoDVIKbWF4VmVyc2lvbhIWCgZzZXJ2ZXIYCSABKAlSBnNl"
        "cnZlchIWCgZtZW1vcnkYCiABKANSBm1lbW9yeRIfCgttZW1vcnlfZnJlZRgLIAEoA1IKbWVtb3J5"
        "RnJlZRIhCgxtZW1vcnlfZGlydHkYDCABKANSC21lbW9yeURpcnR5EhIKBGRpc2sYDSABKANSBGRp"
        "c2sSGwoJZGlza19mcmVlGA4gASgDUghkaXNrRnJlZRIdCgpkaXNrX2RpcnR5GA8gASgDUglkaXNr"
        "RGlydHkSGQoIc2luY2VfbnMYECABKANSB3NpbmNlTnMSGAoHcmVmdXNlZBgRIAEoCVIHcmVmdXNl"
        "ZCIeCghOb2RlTmFtZRISCgRuYW1lGAEgASgJUgRuYW1lIkUKCU5vZGVEcmFpbhISCgRuYW1lGAEg"
        "ASgJUgRuYW1lEhQKBWxvY2FsGAIgASgIUgVsb2NhbBIOCgJ0bxgDIAMoCVICdG8ikwEKDU5vZGVG"
        "b3Jnb3R0ZW4SJQoEbG9zdBgBIAMoCzIRLmZvcmViYXkudjEuRW50cnlSBGxvc3QSHQoKbG9zdF90"
        "b3RhbBgCIAEoA1IJbG9zdFRvdGFsEh0KCmxvc3RfYnl0ZXMYAyABKANSCWxvc3RCeXRlcxIdCgpr"
        "ZXB0X3RvdGFsGAQgASgDUglrZXB0VG90YWwiRwoMVG9rZW5SZXF1ZXN0EhYKBmJ1ZmZlchgBIAEo"
        "CVIGYnVmZmVyEh8KC2xpZmV0aW1lX25zGAIgASgDUgpsaWZldGltZU5zIjwKBVRva2VuEhQKBXRv"
        "a2VuGAEgASgMUgV0b2tlbhIdCgpleHBpcmVzX25zGAIgASgDUglleHBpcmVzTnMiTAoESG9sZBIW"
        "CgZidWZmZXIYASABKAlSBmJ1ZmZlchIUCgVwYXRocxgCIAMoCVIFcGF0aHMSFgoGZnJlZXplGAMg"
        "ASgIUgZmcmVlemUikgEKBFRha2USFgoGYnVmZmVyGAEgASgJUgZidWZmZXISEAoDZGlyGAIgASgE"
        "UgNkaXISEgoEbmFtZRgDIAEoCVIEbmFtZRISCgRmaWxlGAQgASgEUgRmaWxlEh4KCmdlbmVyYXRp"
        "b24YBSABKARSCmdlbmVyYXRpb24SGAoHcmVwbGljYRgGIAEoCFIHcmVwbGljYSJJCgdSZWNoZWNr"
        "EhYKBmJ1ZmZlchgBIAEoCVIGYnVmZmVyEhIKBHBhdGgYAiABKAlSBHBhdGgSEgoEdHJlZRgDIAEo"
        "CFIEdHJlZSK/AQoLUGxhY2VSZW5hbWUSFgoGYnVmZmVyGAEgASgJUgZidWZmZXISGQoIZnJvbV9k"
        "aXIYAiABKARSB2Zyb21EaXISGwoJZnJvbV9uYW1lGAMgASgJUghmcm9tTmFtZRIVCgZ0b19kaXIY"
        "BCABKARSBXRvRGlyEhcKB3RvX25hbWUYBSABKAlSBnRvTmFtZRIWCgZleHBlY3QYBiABKARSBmV4"
        "cGVjdBIYCgdyZXBsYWNlGAcgASgIUgdyZXBsYWNlIpcBCgtQbGFjZVJlbW92ZRIWCgZidWZmZXIY"
        "ASABKAlSBmJ1ZmZlchIQCgNkaXIYAiABKARSA2RpchISCgRuYW1lGAMgASgJUgRuYW1lEhYKBmV4"
        "cGVjdBgEIAEoBFIGZXhwZWN0Eh4KCmdlbmVyYXRpb24YBSABKARSCmdlbmVyYXRpb24SEgoEcGF0"
        "aBgGIAEoCVIEcGF0aCJVCgdEaXNjYXJkEhYKBmJ1ZmZlchgBIAEoCVIGYnVmZmVyEhIKBGZpbGUY"
        "AiABKARSBGZpbGUSHgoKZ2VuZXJhdGlvbhgDIAEoBFIKZ2VuZXJhdGlvbiLgAQoJUmVwbGljYXRl"
        "EhYKBmJ1ZmZlchgBIAEoCVIGYnVmZmVyEhIKBGZpbGUYAiABKARSBGZpbGUSHgoKZ2VuZXJhdGlv"
        "bhgDIAEoBFIKZ2VuZXJhdGlvbhIUCgV3aG9sZRgEIAEoCFIFd2hvbGUSLwoHZXh0ZW50cxgFIAMo"
        "CzIVLmZvcmViYXkudjEuTmV3RXh0ZW50UgdleHRlbnRzEhQKBXBhcnRzGAYgASgEUgVwYXJ0cxIW"
        "CgZiZWZvcmUYByABKA1SBmJlZm9yZRISCgRtb3JlGAggASgIUgRtb3JlKu4ICgRUeXBlEhQKEFRZ"
        "UEVfVU5TUEVDSUZJRUQQABIOCgpUWVBFX0hFTExPEAESDwoLVFlQRV9DQU5DRUwQAhIOCgpUWVBF"
        "X1BST1ZFEAUSDgoKVFlQRV9QVUxTRRAGEg8KC1RZUEVfU1RBVFVTEAMSEgoOVFlQRV9TVUJTQ1JJ"
        "QkUQBBIWChJUWVBFX0JVRkZFUl9DUkVBVEUQChITCg9UWVBFX0JVRkZFUl9HRVQQCxIUChBUWVBF"
        "X0JVRkZFUl9MSVNUEAwSFwoTVFlQRV9CVUZGRVJfREVTVFJPWRANEhcKE1RZUEVfQlVGRkVSX1JF"
        "QlVJTEQQDhINCglUWVBFX1NUQVQQFBINCglUWVBFX0xJU1QQFRIOCgpUWVBFX01LRElSEBYSDwoL"
        "VFlQRV9SRU5BTUUQFxIPCgtUWVBFX1JFTU9WRRAYEhAKDFRZUEVfU0VUQVRUUhAZEg0KCVRZUEVf"
        "TE9TVBAaEg4KClRZUEVfTUtOT0QQGxINCglUWVBFX09QRU4QHhIPCgtUWVBFX0NPTU1JVBAfEhAK"
        "DFRZUEVfRVhURU5UUxAgEg4KClRZUEVfVU5QSU4QIRIOCgpUWVBFX0NMT1NFECISDgoKVFlQRV9M"
        "RUFTRRAjEg8KC1RZUEVfUkVUVVJOECQSDgoKVFlQRV9EUkFJThAoEhEKDVRZUEVfU1RBR0VfSU4Q"
        "KRISCg5UWVBFX1NUQUdFX09VVBAqEg8KC1RZUEVfVkVSSUZZECsSEAoMVFlQRV9SRUNFSVBUECwS"
        "DgoKVFlQRV9OT0RFUxAyEhMKD1RZUEVfTk9ERV9EUkFJThAzEhUKEVRZUEVfTk9ERV9VTkRSQUlO"
        "EDASFAoQVFlQRV9OT0RFX0ZPUkdFVBA0EhIKDlRZUEVfTk9ERV9MT1NTEC8SDgoKVFlQRV9UT0tF"
        "ThA1Eg0KCVRZUEVfSk9CUxA2EgwKCFRZUEVfSk9CEDcSEwoPVFlQRV9KT0JfQ0FOQ0VMEDgSFgoS"
        "VFlQRV9MSUZFVElNRV9PUEVOEDkSFwoTVFlQRV9MSUZFVElNRV9MRUFWRRA6EhUKEVRZUEVfTElG"
        "RVRJTUVfRU5EEDsSFQoRVFlQRV9MSUZFVElNRV9EVUUQLhISCg5UWVBFX0xJRkVUSU1FUxAtEhIK"
        "DlRZUEVfVFhOX0JFR0lOEEYSEgoOVFlQRV9UWE5fQURPUFQQRxITCg9UWVBFX1RYTl9DT01NSVQQ"
        "SBISCg5UWVBFX1RYTl9BQk9SVBBJEhIKDlRZUEVfVFhOX1JFTkVXEEoSEAoMVFlQRV9UWE5fR0VU"
        "EEsSEQoNVFlQRV9UWE5fTElTVBBMEg0KCVRZUEVfSE9MRBA8Eg0KCVRZUEVfVEFLRRA9EhAKDFRZ"
        "UEVfRElTQ0FSRBA+EhIKDlRZUEVfUkVQTElDQVRFED8SEAoMVFlQRV9SRUNIRUNLEEASFQoRVFlQ"
        "RV9QTEFDRV9SRU5BTUUQQRIVChFUWVBFX1BMQUNFX1JFTU9WRRBCQhdaFWZvcmViYXkvaW50ZXJu"
        "YWwvd2lyZWIGcHJvdG8z"
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
PlaceRename = _classes["forebay.v1.PlaceRename"]
PlaceRemove = _classes["forebay.v1.PlaceRemove"]
Discard = _classes["forebay.v1.Discard"]
Replicate = _classes["forebay.v1.Replicate"]
