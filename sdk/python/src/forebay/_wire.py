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
        "CFIHZGlzY2FyZCI3CgdCdWZmZXJzEiwKB2J1ZmZlcnMYASADKAsyEi5mb3JlYmF5LnYxLkJ1ZmZl"
        "clIHYnVmZmVycyLnBAoGQnVmZmVyEhIKBG5hbWUYASABKAlSBG5hbWUSEAoDdWlkGAIgASgNUgN1"
        "aWQSEAoDZ2lkGAMgASgNUgNnaWQSEgoEbW9kZRgEIAEoDVIEbW9kZRIaCghjYXBhY2l0eRgFIAEo"
        "A1IIY2FwYWNpdHkSGAoHYmFja2luZxgGIAEoCVIHYmFja2luZxIeCgpkdXJhYmlsaXR5GAcgASgJ"
        "UgpkdXJhYmlsaXR5EhQKBWNvZGVjGAggASgJUgVjb2RlYxISCgRrZWVwGAkgAygJUgRrZWVwEh8K"
        "C2ZsdXNoX2xpbWl0GAogASgDUgpmbHVzaExpbWl0EiAKDGRpcnR5X2FnZV9ucxgLIAEoA1IKZGly"
        "dHlBZ2VOcxIXCgdub193YWl0GAwgASgIUgZub1dhaXQSGAoHcmVjZWlwdBgNIAEoCFIHcmVjZWlw"
        "dBIQCgNqb2IYDiABKAlSA2pvYhIdCgpjcmVhdGVkX25zGA8gASgDUgljcmVhdGVkTnMSFAoFc3Rh"
        "dGUYECABKAlSBXN0YXRlEiEKDGtlZXBfZGVmYXVsdBgRIAEoCFILa2VlcERlZmF1bHQSGgoIcmVw"
        "bGljYXMYEiABKA1SCHJlcGxpY2FzEioKBXRpZXJzGBMgAygLMhQuZm9yZWJheS52MS5UaWVyUnVs"
        "ZVIFdGllcnMSGgoIZXhpc3RpbmcYFCABKAlSCGV4aXN0aW5nEhQKBWZvdW5kGBUgASgJUgVmb3Vu"
        "ZBIfCgtmb3VuZF90b3RhbBgWIAEoDVIKZm91bmRUb3RhbBIWCgZzaGFyZWQYFyABKAhSBnNoYXJl"
        "ZCI4CghUaWVyUnVsZRIYCgdwYXR0ZXJuGAEgASgJUgdwYXR0ZXJuEhIKBHRpZXIYAiABKA1SBHRp"
        "ZXIilwMKBUVudHJ5EhIKBG5hbWUYASABKAlSBG5hbWUSEgoEdHlwZRgCIAEoDVIEdHlwZRISCgRm"
        "aWxlGAMgASgEUgRmaWxlEh4KCmdlbmVyYXRpb24YBCABKARSCmdlbmVyYXRpb24SEgoEc2l6ZRgF"
        "IAEoA1IEc2l6ZRIaCghjaGVja3N1bRgGIAEoBFIIY2hlY2tzdW0SEgoEb3BlbhgHIAEoCFIEb3Bl"
        "bhIYCgdob2xkZXJzGAggAygJUgdob2xkZXJzEhIKBG1vZGUYCSABKA1SBG1vZGUSEAoDdWlkGAog"
        "ASgNUgN1aWQSEAoDZ2lkGAsgASgNUgNnaWQSGQoIbXRpbWVfbnMYDCABKANSB210aW1lTnMSFAoF"
        "c3RhdGUYDSABKA1SBXN0YXRlEhYKBnJlYXNvbhgOIAEoCVIGcmVhc29uEhAKA2RpchgPIAEoBFID"
        "ZGlyEi0KB2ZsdXNoZWQYECABKAsyEy5mb3JlYmF5LnYxLkZsdXNoZWRSB2ZsdXNoZWQSEgoEcGF0"
        "aBgRIAEoCVIEcGF0aCI2CgdFbnRyaWVzEisKB2VudHJpZXMYASADKAsyES5mb3JlYmF5LnYxLkVu"
        "dHJ5UgdlbnRyaWVzIqgBCgdGbHVzaGVkEh4KCmdlbmVyYXRpb24YASABKARSCmdlbmVyYXRpb24S"
        "EgoEZXRhZxgCIAEoCVIEZXRhZxISCgRzaXplGAMgASgDUgRzaXplEhoKCGNoZWNrc3VtGAQgASgE"
        "UghjaGVja3N1bRIUCgVjb2RlYxgFIAEoCVIFY29kZWMSEwoFYXRfbnMYBiABKANSBGF0TnMSDgoC"
        "YnkYByABKAlSAmJ5IjkKC1BhdGhSZXF1ZXN0EhYKBmJ1ZmZlchgBIAEoCVIGYnVmZmVyEhIKBHBh"
        "dGgYAiABKAlSBHBhdGgiZQoLTGlzdFJlcXVlc3QSFgoGYnVmZmVyGAEgASgJUgZidWZmZXISEgoE"
        "cGF0aBgCIAEoCVIEcGF0aBIUCgVhZnRlchgDIAEoCVIFYWZ0ZXISFAoFbGltaXQYBCABKA1SBWxp"
        "bWl0IkwKCUxpc3RSZXBseRIrCgdlbnRyaWVzGAEgAygLMhEuZm9yZWJheS52MS5FbnRyeVIHZW50"
        "cmllcxISCgRtb3JlGAIgASgIUgRtb3JlImEKBU1rZGlyEhYKBmJ1ZmZlchgBIAEoCVIGYnVmZmVy"
        "EhIKBHBhdGgYAiABKAlSBHBhdGgSEgoEbW9kZRgDIAEoDVIEbW9kZRIYCgdwYXJlbnRzGAQgASgI"
        "UgdwYXJlbnRzImMKBlJlbmFtZRIWCgZidWZmZXIYASABKAlSBmJ1ZmZlchISCgRmcm9tGAIgASgJ"
        "UgRmcm9tEg4KAnRvGAMgASgJUgJ0bxIdCgpub19yZXBsYWNlGAQgASgIUglub1JlcGxhY2UiZgoG"
        "UmVtb3ZlEhYKBmJ1ZmZlchgBIAEoCVIGYnVmZmVyEhIKBHBhdGgYAiABKAlSBHBhdGgSHAoJcmVj"
        "dXJzaXZlGAMgASgIUglyZWN1cnNpdmUSEgoEcGFnZRgEIAEoA1IEcGFnZSJVCgdSZW1vdmVkEhQK"
        "BWZpbGVzGAEgASgDUgVmaWxlcxIgCgtkaXJlY3RvcmllcxgCIAEoA1ILZGlyZWN0b3JpZXMSEgoE"
        "bW9yZRgDIAEoCFIEbW9yZSLCAQoHU2V0QXR0chIWCgZidWZmZXIYASABKAlSBmJ1ZmZlchISCgRw"
        "YXRoGAIgASgJUgRwYXRoEhcKBG1vZGUYAyABKA1IAFIEbW9kZYgBARIVCgN1aWQYBCABKA1IAVID"
        "dWlkiAEBEhUKA2dpZBgFIAEoDUgCUgNnaWSIAQESHgoIbXRpbWVfbnMYBiABKANIA1IHbXRpbWVO"
        "c4gBAUIHCgVfbW9kZUIGCgRfdWlkQgYKBF9naWRCCwoJX210aW1lX25zIsIDCgRPcGVuEhYKBmhh"
        "bmRsZRgBIAEoBFIGaGFuZGxlEhYKBmJ1ZmZlchgCIAEoCVIGYnVmZmVyEhIKBHBhdGgYAyABKAlS"
        "BHBhdGgSFAoFd3JpdGUYBCABKAhSBXdyaXRlEhYKBmNyZWF0ZRgFIAEoCFIGY3JlYXRlEhwKCWV4"
        "Y2x1c2l2ZRgGIAEoCFIJZXhjbHVzaXZlEhoKCHRydW5jYXRlGAcgASgIUgh0cnVuY2F0ZRISCgRt"
        "b2RlGAggASgNUgRtb2RlEh8KC3Jlc3VtZV9maWxlGAkgASgEUgpyZXN1bWVGaWxlEisKEXJlc3Vt"
        "ZV9nZW5lcmF0aW9uGAogASgEUhByZXN1bWVHZW5lcmF0aW9uEikKEHJlc3VtZV9jb21taXR0ZWQY"
        "CyABKAhSD3Jlc3VtZUNvbW1pdHRlZBISCgR3YW50GAwgASgNUgR3YW50EhIKBGZpbGUYDSABKARS"
        "BGZpbGUSHgoKZ2VuZXJhdGlvbhgOIAEoBFIKZ2VuZXJhdGlvbhIjCg1yZXN1bWVfd3JpdGVyGA8g"
        "ASgEUgxyZXN1bWVXcml0ZXISFAoFZmVuY2UYFCABKAhSBWZlbmNlItkBCgZPcGVuZWQSJwoFZW50"
        "cnkYASABKAsyES5mb3JlYmF5LnYxLkVudHJ5UgVlbnRyeRIeCgpnZW5lcmF0aW9uGAIgASgEUgpn"
        "ZW5lcmF0aW9uEi0KB2V4dGVudHMYAyABKAsyEy5mb3JlYmF5LnYxLkV4dGVudHNSB2V4dGVudHMS"
        "JQoOYWxyZWFkeV9jbG9zZWQYBCABKAhSDWFscmVhZHlDbG9zZWQSHAoJY29tbWl0dGVkGAUgASgE"
        "Ugljb21taXR0ZWQSEgoEdGllchgGIAEoDVIEdGllciKUAQoMTGVhc2VSZXF1ZXN0EhYKBmJ1ZmZl"
        "chgBIAEoCVIGYnVmZmVyEhQKBWJ5dGVzGAIgASgDUgVieXRlcxISCgRmaXRzGAMgASgDUgRmaXRz"
        "EhIKBHRpZXIYBCABKA1SBHRpZXISFAoFZmlsZXMYBSABKA1SBWZpbGVzEhgKB2NvbW1pdHMYBiAB"
        "KAhSB2NvbW1pdHMizQEKBUxlYXNlEg4KAmlkGAEgASgEUgJpZBIqCgZyZWdpb24YAiABKAsyEi5m"
        "b3JlYmF5LnYxLlJlZ2lvblIGcmVnaW9uEhYKBm9mZnNldBgDIAEoA1IGb2Zmc2V0EhYKBmxlbmd0"
        "aBgEIAEoA1IGbGVuZ3RoEh0KCmRhdGFfc3RhcnQYBSABKANSCWRhdGFTdGFydBIhCgxyZWNvcmRf"
        "Zmxvb3IYBiABKANSC3JlY29yZEZsb29yEhYKBnRpZXJlZBgHIAEoCFIGdGllcmVkIh0KC1JldHVy"
        "bkxlYXNlEg4KAmlkGAEgASgEUgJpZCJWCgZSZWdpb24SDgoCaWQYASABKARSAmlkEhIKBHBhdGgY"
        "AiABKAlSBHBhdGgSFgoGbGVuZ3RoGAMgASgDUgZsZW5ndGgSEAoDa2V5GAQgASgMUgNrZXkiyAEK"
        "BkNvbW1pdBIWCgZoYW5kbGUYASABKARSBmhhbmRsZRIvCgdleHRlbnRzGAIgAygLMhUuZm9yZWJh"
        "eS52MS5OZXdFeHRlbnRSB2V4dGVudHMSFAoFY2xvc2UYAyABKAhSBWNsb3NlEhQKBWFib3J0GAQg"
        "ASgIUgVhYm9ydBIZCghtdGltZV9ucxgFIAEoA1IHbXRpbWVOcxIWCgZ3cml0ZXIYBiABKARSBndy"
        "aXRlchIWCgZudW1iZXIYByABKARSBm51bWJlciKdAQoJTmV3RXh0ZW50Eh8KC2ZpbGVfb2Zmc2V0"
        "GAEgASgDUgpmaWxlT2Zmc2V0EhYKBmxlbmd0aBgCIAEoA1IGbGVuZ3RoEhoKCGNoZWNrc3VtGAMg"
        "ASgEUghjaGVja3N1bRIUCgVsZWFzZRgEIAEoBFIFbGVhc2USJQoOc2VnbWVudF9vZmZzZXQYBSAB"
        "KANSDXNlZ21lbnRPZmZzZXQiUwoJQ29tbWl0dGVkEhIKBHNpemUYASABKANSBHNpemUSHgoKZ2Vu"
        "ZXJhdGlvbhgCIAEoBFIKZ2VuZXJhdGlvbhISCgRmaWxlGAMgASgEUgRmaWxlIogBCg5FeHRlbnRz"
        "UmVxdWVzdBIWCgZoYW5kbGUYASABKARSBmhhbmRsZRIWCgZvZmZzZXQYAiABKANSBm9mZnNldBIW"
        "CgZsZW5ndGgYAyABKANSBmxlbmd0aBIWCgZpbmxpbmUYBCABKAhSBmlubGluZRIWCgZsYXlvdXQY"
        "BSABKAhSBmxheW91dCKsAQoHRXh0ZW50cxIQCgNwaW4YASABKARSA3BpbhIsCgdleHRlbnRzGAIg"
        "AygLMhIuZm9yZWJheS52MS5FeHRlbnRSB2V4dGVudHMSLAoHcmVnaW9ucxgDIAMoCzISLmZvcmVi"
        "YXkudjEuUmVnaW9uUgdyZWdpb25zEhIKBHNpemUYBCABKANSBHNpemUSHwoLZGF0YV9sZW5ndGgY"
        "BSABKA1SCmRhdGFMZW5ndGgi0wEKBkV4dGVudBIfCgtmaWxlX29mZnNldBgBIAEoA1IKZmlsZU9m"
        "ZnNldBIWCgZsZW5ndGgYAiABKANSBmxlbmd0aBIWCgZyZWdpb24YAyABKARSBnJlZ2lvbhIWCgZv"
        "ZmZzZXQYBCABKANSBm9mZnNldBIaCghjaGVja3N1bRgFIAEoBFIIY2hlY2tzdW0SIQoMY2hlY2tf"
        "b2Zmc2V0GAYgASgDUgtjaGVja09mZnNldBIhCgxjaGVja19sZW5ndGgYByABKANSC2NoZWNrTGVu"
        "Z3RoIhsKBVVucGluEhIKBHBpbnMYASADKARSBHBpbnMiHwoFQ2xvc2USFgoGaGFuZGxlGAEgASgE"
        "UgZoYW5kbGUimgEKBURyYWluEhYKBmJ1ZmZlchgBIAEoCVIGYnVmZmVyEh0KCnRpbWVvdXRfbnMY"
        "AiABKANSCXRpbWVvdXROcxIUCgVsb2NhbBgDIAEoCFIFbG9jYWwSEAoDa2V5GAQgASgJUgNrZXkS"
        "FAoFYmVsb3cYBSABKAlSBWJlbG93EhwKCW92ZXJ3cml0ZRgGIAEoCFIJb3ZlcndyaXRlIowBCgVT"
        "dGFnZRIWCgZidWZmZXIYASABKAlSBmJ1ZmZlchISCgRwYXRoGAIgASgJUgRwYXRoEhAKA3VybBgD"
        "IAEoCVIDdXJsEhcKB2RyeV9ydW4YBCABKAhSBmRyeVJ1bhIaCghwYXJhbGxlbBgFIAEoDVIIcGFy"
        "YWxsZWwSEAoDa2V5GAYgASgJUgNrZXkiLgoGVmVyaWZ5EhAKA3VybBgBIAEoCVIDdXJsEhIKBGRl"
        "ZXAYAiABKAhSBGRlZXAihwQKCFByb2dyZXNzEh8KC2ZpbGVzX3RvdGFsGAEgASgDUgpmaWxlc1Rv"
        "dGFsEh0KCmZpbGVzX2RvbmUYAiABKANSCWZpbGVzRG9uZRIfCgtieXRlc190b3RhbBgDIAEoA1IK"
        "Ynl0ZXNUb3RhbBIdCgpieXRlc19kb25lGAQgASgDUglieXRlc0RvbmUSIwoNZmlsZXNfc2tpcHBl"
        "ZBgFIAEoA1IMZmlsZXNTa2lwcGVkEhIKBGRvbmUYBiABKAhSBGRvbmUSKwoGZmFpbGVkGAcgAygL"
        "MhMuZm9yZWJheS52MS5GYWlsdXJlUgZmYWlsZWQSEgoEaGVsZBgIIAMoCVIEaGVsZBISCgRvcGVu"
        "GAkgAygJUgRvcGVuEh0KCmhlbGRfdG90YWwYCiABKANSCWhlbGRUb3RhbBIdCgpvcGVuX3RvdGFs"
        "GAsgASgDUglvcGVuVG90YWwSIQoMZmFpbGVkX3RvdGFsGAwgASgDUgtmYWlsZWRUb3RhbBIdCgps"
        "YXN0X2Vycm9yGA0gASgJUglsYXN0RXJyb3ISFAoFbmFtZXMYDiADKAlSBW5hbWVzEhAKA2pvYhgP"
        "IAEoCVIDam9iEhsKCXRpbWVkX291dBgQIAEoCFIIdGltZWRPdXQSKAoQYnl0ZXNfbm90X2NvcGll"
        "ZBgRIAEoA1IOYnl0ZXNOb3RDb3BpZWQiXwoHRmFpbHVyZRISCgRwYXRoGAEgASgJUgRwYXRoEhIK"
        "BGtpbmQYAiABKA1SBGtpbmQSFgoGcmVhc29uGAMgASgJUgZyZWFzb24SFAoFYnl0ZXMYBCABKANS"
        "BWJ5dGVzIjIKCkpvYlJlcXVlc3QSDgoCaWQYASABKAlSAmlkEhQKBXdhdGNoGAIgASgIUgV3YXRj"
        "aCIeCghKb2JSZXBseRISCgRqc29uGAEgASgMUgRqc29uIh4KCExpZmV0aW1lEhIKBGpzb24YASAB"
        "KAxSBGpzb24ijgEKDExpZmV0aW1lT3BlbhISCgRqc29uGAEgASgMUgRqc29uEioKBmNyZWF0ZRgC"
        "IAMoCzISLmZvcmViYXkudjEuQnVmZmVyUgZjcmVhdGUSFgoGYXR0YWNoGAMgASgIUgZhdHRhY2gS"
        "FAoFYmVnaW4YBCABKAhSBWJlZ2luEhAKA3JhbhgFIAEoCFIDcmFuIk0KDUxpZmV0aW1lTGVhdmUS"
        "EAoDa2V5GAEgASgJUgNrZXkSEgoEbm9kZRgCIAEoCVIEbm9kZRIWCgZmYWlsZWQYAyABKAhSBmZh"
        "aWxlZCJqCgtMaWZldGltZUVuZBIQCgNrZXkYASABKAlSA2tleRIUCgVodXJyeRgCIAEoCFIFaHVy"
        "cnkSFgoGZmFpbGVkGAMgASgIUgZmYWlsZWQSGwoJd2hlbl9sZWZ0GAQgASgIUgh3aGVuTGVmdCJO"
        "CgtMaWZldGltZUR1ZRIQCgNrZXkYASABKAlSA2tleRIVCgZkdWVfbnMYAiABKANSBWR1ZU5zEhYK"
        "Bndhcm5lZBgDIAEoCFIGd2FybmVkIi8KCUxpZmV0aW1lcxIQCgNrZXkYASABKAlSA2tleRIQCgNq"
        "b2IYAiABKAlSA2pvYiLMAgoDVHhuEhYKBmJ1ZmZlchgBIAEoCVIGYnVmZmVyEg4KAmlkGAIgASgJ"
        "UgJpZBIgCgtkZXN0aW5hdGlvbhgDIAEoCVILZGVzdGluYXRpb24SEAoDa2V5GAQgASgJUgNrZXkS"
        "FAoFc3RhdGUYBSABKAlSBXN0YXRlEhIKBHBhdGgYBiABKAlSBHBhdGgSEAoDdWlkGAcgASgNUgN1"
        "aWQSEAoDZ2lkGAggASgNUgNnaWQSHQoKY3JlYXRlZF9ucxgJIAEoA1IJY3JlYXRlZE5zEhkKCGVu"
        "ZGVkX25zGAogASgDUgdlbmRlZE5zEhkKCGxlYXNlX25zGAsgASgDUgdsZWFzZU5zEhgKB3JlcGxh"
        "Y2UYDCADKAlSB3JlcGxhY2USFgoGcmVhc29uGA0gASgJUgZyZWFzb24SFAoFdGFza3MYDiABKA1S"
        "BXRhc2tzIisKBFR4bnMSIwoEdHhucxgBIAMoCzIPLmZvcmViYXkudjEuVHhuUgR0eG5zInEKCFR4"
        "bkJlZ2luEhYKBmJ1ZmZlchgBIAEoCVIGYnVmZmVyEiAKC2Rlc3RpbmF0aW9uGAIgASgJUgtkZXN0"
        "aW5hdGlvbhIQCgNrZXkYAyABKAlSA2tleRIZCghsZWFzZV9ucxgEIAEoA1IHbGVhc2VOcyIxCgdU"
        "eG5OYW1lEhYKBmJ1ZmZlchgBIAEoCVIGYnVmZmVyEg4KAmlkGAIgASgJUgJpZCJgCghUeG5BZG9w"
        "dBIWCgZidWZmZXIYASABKAlSBmJ1ZmZlchIOCgJpZBgCIAEoCVICaWQSEgoEdGFzaxgDIAEoCVIE"
        "dGFzaxIYCgdhdHRlbXB0GAQgASgJUgdhdHRlbXB0IiQKClR4bkFkb3B0ZWQSFgoGd2lubmVyGAEg"
        "ASgJUgZ3aW5uZXIiYQoJVHhuQ29tbWl0EhYKBmJ1ZmZlchgBIAEoCVIGYnVmZmVyEg4KAmlkGAIg"
        "ASgJUgJpZBIYCgdyZXBsYWNlGAMgAygJUgdyZXBsYWNlEhIKBHdhaXQYBCABKAhSBHdhaXQiLwoF"
        "Tm9kZXMSJgoFbm9kZXMYASADKAsyEC5mb3JlYmF5LnYxLk5vZGVSBW5vZGVzIs8DCgROb2RlEhIK"
        "BG5hbWUYASABKAlSBG5hbWUSGgoIaW5zdGFuY2UYAiABKARSCGluc3RhbmNlEhQKBXN0YXRlGAMg"
        "ASgJUgVzdGF0ZRIYCgdzZXNzaW9uGAQgASgJUgdzZXNzaW9uEhYKBmZhYnJpYxgFIAEoCVIGZmFi"
        "cmljEhQKBWFkbWluGAYgASgJUgVhZG1pbhIfCgttaW5fdmVyc2lvbhgHIAEoDVIKbWluVmVyc2lv"
        "bhIfCgttYXhfdmVyc2lvbhgIIAEoDVIKbWF4VmVyc2lvbhIWCgZzZXJ2ZXIYCSABKAlSBnNlcnZl"
        "chIWCgZtZW1vcnkYCiABKANSBm1lbW9yeRIfCgttZW1vcnlfZnJlZRgLIAEoA1IKbWVtb3J5RnJl"
        "ZRIhCgxtZW1vcnlfZGlydHkYDCABKANSC21lbW9yeURpcnR5EhIKBGRpc2sYDSABKANSBGRpc2sS"
        "GwoJZGlza19mcmVlGA4gASgDUghkaXNrRnJlZRIdCgpkaXNrX2RpcnR5GA8gASgDUglkaXNrRGly"
        "dHkSGQoIc2luY2VfbnMYECABKANSB3NpbmNlTnMSGAoHcmVmdXNlZBgRIAEoCVIHcmVmdXNlZCIe"
        "CghOb2RlTmFtZRISCgRuYW1lGAEgASgJUgRuYW1lIkUKCU5vZGVEcmFpbhISCgRuYW1lGAEgASgJ"
        "UgRuYW1lEhQKBWxvY2FsGAIgASgIUgVsb2NhbBIOCgJ0bxgDIAMoCVICdG8ikwEKDU5vZGVGb3Jn"
        "b3R0ZW4SJQoEbG9zdBgBIAMoCzIRLmZvcmViYXkudjEuRW50cnlSBGxvc3QSHQoKbG9zdF90b3Rh"
        "bBgCIAEoA1IJbG9zdFRvdGFsEh0KCmxvc3RfYnl0ZXMYAyABKANSCWxvc3RCeXRlcxIdCgprZXB0"
        "X3RvdGFsGAQgASgDUglrZXB0VG90YWwiRwoMVG9rZW5SZXF1ZXN0EhYKBmJ1ZmZlchgBIAEoCVIG"
        "YnVmZmVyEh8KC2xpZmV0aW1lX25zGAIgASgDUgpsaWZldGltZU5zIjwKBVRva2VuEhQKBXRva2Vu"
        "GAEgASgMUgV0b2tlbhIdCgpleHBpcmVzX25zGAIgASgDUglleHBpcmVzTnMiTAoESG9sZBIWCgZi"
        "dWZmZXIYASABKAlSBmJ1ZmZlchIUCgVwYXRocxgCIAMoCVIFcGF0aHMSFgoGZnJlZXplGAMgASgI"
        "UgZmcmVlemUikgEKBFRha2USFgoGYnVmZmVyGAEgASgJUgZidWZmZXISEAoDZGlyGAIgASgEUgNk"
        "aXISEgoEbmFtZRgDIAEoCVIEbmFtZRISCgRmaWxlGAQgASgEUgRmaWxlEh4KCmdlbmVyYXRpb24Y"
        "BSABKARSCmdlbmVyYXRpb24SGAoHcmVwbGljYRgGIAEoCFIHcmVwbGljYSJJCgdSZWNoZWNrEhYK"
        "BmJ1ZmZlchgBIAEoCVIGYnVmZmVyEhIKBHBhdGgYAiABKAlSBHBhdGgSEgoEdHJlZRgDIAEoCFIE"
        "dHJlZSK/AQoLUGxhY2VSZW5hbWUSFgoGYnVmZmVyGAEgASgJUgZidWZmZXISGQoIZnJvbV9kaXIY"
        "AiABKARSB2Zyb21EaXISGwoJZnJvbV9uYW1lGAMgASgJUghmcm9tTmFtZRIVCgZ0b19kaXIYBCAB"
        "KARSBXRvRGlyEhcKB3RvX25hbWUYBSABKAlSBnRvTmFtZRIWCgZleHBlY3QYBiABKARSBmV4cGVj"
        "dBIYCgdyZXBsYWNlGAcgASgIUgdyZXBsYWNlImMKC1BsYWNlUmVtb3ZlEhYKBmJ1ZmZlchgBIAEo"
        "CVIGYnVmZmVyEhAKA2RpchgCIAEoBFIDZGlyEhIKBG5hbWUYAyABKAlSBG5hbWUSFgoGZXhwZWN0"
        "GAQgASgEUgZleHBlY3QiVQoHRGlzY2FyZBIWCgZidWZmZXIYASABKAlSBmJ1ZmZlchISCgRmaWxl"
        "GAIgASgEUgRmaWxlEh4KCmdlbmVyYXRpb24YAyABKARSCmdlbmVyYXRpb24i4AEKCVJlcGxpY2F0"
        "ZRIWCgZidWZmZXIYASABKAlSBmJ1ZmZlchISCgRmaWxlGAIgASgEUgRmaWxlEh4KCmdlbmVyYXRp"
        "b24YAyABKARSCmdlbmVyYXRpb24SFAoFd2hvbGUYBCABKAhSBXdob2xlEi8KB2V4dGVudHMYBSAD"
        "KAsyFS5mb3JlYmF5LnYxLk5ld0V4dGVudFIHZXh0ZW50cxIUCgVwYXJ0cxgGIAEoBFIFcGFydHMS"
        "FgoGYmVmb3JlGAcgASgNUgZiZWZvcmUSEgoEbW9yZRgIIAEoCFIEbW9yZSrFCAoEVHlwZRIUChBU"
        "WVBFX1VOU1BFQ0lGSUVEEAASDgoKVFlQRV9IRUxMTxABEg8KC1RZUEVfQ0FOQ0VMEAISDgoKVFlQ"
        "RV9QUk9WRRAFEg4KClRZUEVfUFVMU0UQBhIPCgtUWVBFX1NUQVRVUxADEhIKDlRZUEVfU1VCU0NS"
        "SUJFEAQSFgoSVFlQRV9CVUZGRVJfQ1JFQVRFEAoSEwoPVFlQRV9CVUZGRVJfR0VUEAsSFAoQVFlQ"
        "RV9CVUZGRVJfTElTVBAMEhcKE1RZUEVfQlVGRkVSX0RFU1RST1kQDRINCglUWVBFX1NUQVQQFBIN"
        "CglUWVBFX0xJU1QQFRIOCgpUWVBFX01LRElSEBYSDwoLVFlQRV9SRU5BTUUQFxIPCgtUWVBFX1JF"
        "TU9WRRAYEhAKDFRZUEVfU0VUQVRUUhAZEg0KCVRZUEVfTE9TVBAaEg0KCVRZUEVfT1BFThAeEg8K"
        "C1RZUEVfQ09NTUlUEB8SEAoMVFlQRV9FWFRFTlRTECASDgoKVFlQRV9VTlBJThAhEg4KClRZUEVf"
        "Q0xPU0UQIhIOCgpUWVBFX0xFQVNFECMSDwoLVFlQRV9SRVRVUk4QJBIOCgpUWVBFX0RSQUlOECgS"
        "EQoNVFlQRV9TVEFHRV9JThApEhIKDlRZUEVfU1RBR0VfT1VUECoSDwoLVFlQRV9WRVJJRlkQKxIQ"
        "CgxUWVBFX1JFQ0VJUFQQLBIOCgpUWVBFX05PREVTEDISEwoPVFlQRV9OT0RFX0RSQUlOEDMSFQoR"
        "VFlQRV9OT0RFX1VORFJBSU4QMBIUChBUWVBFX05PREVfRk9SR0VUEDQSEgoOVFlQRV9OT0RFX0xP"
        "U1MQLxIOCgpUWVBFX1RPS0VOEDUSDQoJVFlQRV9KT0JTEDYSDAoIVFlQRV9KT0IQNxITCg9UWVBF"
        "X0pPQl9DQU5DRUwQOBIWChJUWVBFX0xJRkVUSU1FX09QRU4QORIXChNUWVBFX0xJRkVUSU1FX0xF"
        "QVZFEDoSFQoRVFlQRV9MSUZFVElNRV9FTkQQOxIVChFUWVBFX0xJRkVUSU1FX0RVRRAuEhIKDlRZ"
        "UEVfTElGRVRJTUVTEC0SEgoOVFlQRV9UWE5fQkVHSU4QRhISCg5UWVBFX1RYTl9BRE9QVBBHEhMK"
        "D1RZUEVfVFhOX0NPTU1JVBBIEhIKDlRZUEVfVFhOX0FCT1JUEEkSEgoOVFlQRV9UWE5fUkVORVcQ"
        "ShIQCgxUWVBFX1RYTl9HRVQQSxIRCg1UWVBFX1RYTl9MSVNUEEwSDQoJVFlQRV9IT0xEEDwSDQoJ"
        "VFlQRV9UQUtFED0SEAoMVFlQRV9ESVNDQVJEED4SEgoOVFlQRV9SRVBMSUNBVEUQPxIQCgxUWVBF"
        "X1JFQ0hFQ0sQQBIVChFUWVBFX1BMQUNFX1JFTkFNRRBBEhUKEVRZUEVfUExBQ0VfUkVNT1ZFEEJC"
        "F1oVZm9yZWJheS9pbnRlcm5hbC93aXJlYgZwcm90bzM="
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
TYPE_STAT = 20
TYPE_LIST = 21
TYPE_MKDIR = 22
TYPE_RENAME = 23
TYPE_REMOVE = 24
TYPE_SETATTR = 25
TYPE_LOST = 26
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
